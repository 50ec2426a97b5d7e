"""Rules for stages with one array for each parameter or statistic."""

import dataclasses
import math

import numpy as np

from resnet_fn.parity.compare.allowed import (
    Allowed,
    capped_rounding,
    exactly,
    larger_bound,
    median_of_stage,
    part_of_stage,
)
from resnet_fn.parity.compare.notes import training_notes
from resnet_fn.parity.compare.rule import Rule
from resnet_fn.parity.compare.sides import Sides
from resnet_fn.parity.compare.stage import NOT_RUN, Stage, not_in_task
from resnet_fn.parity.compare.workers import PortWorkers
from resnet_fn.parity.pair import name_map
from resnet_fn.parity.trace.difference import (
    DIFFERS,
    UNDECIDED,
    Difference,
    are_integers,
    norm,
)
from resnet_fn.parity.trace.stages import ArrayId
from resnet_fn.parity.trace.tree import Arrays


@dataclasses.dataclass(frozen=True)
class Parameters(Rule):
    """Compares arrays under the port's names."""

    tolerance: float = 0.0
    which: str = "all"  # a field of `sides.Names`
    made_of: str = name_map.VALUES  # the kind of the arrays (`MadeOf.build`)

    def compare(self, sides: Sides) -> Stage:
        """Compare each array that both sides have."""
        names = getattr(sides.arrays, self.which)
        if not names:
            return not_in_task(self.id, "there are none")
        port, given = self.values(sides.port.run), self.values(sides.reference.run)
        reference = sides.names.rename(given, self.made_of)
        common = [
            name
            for name in names
            if name in port and name in reference and not self.is_idle(sides, name, reference[name])
        ]
        if not common:
            if any(name in port and name in reference for name in names):
                return not_in_task(self.id, "nothing changes")
            note = "one side keeps none" if sides.port.run.after else NOT_RUN
            return Stage(self.id, note=note)
        errors = sides.errors(self.id)
        roundings = {}
        for name in common:
            error = sides.rounding_of(self.id, name, given, reference[name])
            if name not in sides.only_rounding:
                error = capped_rounding(sides.names, errors, name, error, self.tolerance)
            roundings[name] = error
        usual = median_of_stage([*roundings.values()])
        whole = math.hypot(*map(norm, reference.values()))
        most, unsure = self.unsure(sides, reference)
        changing = sides.names.rename(sides.changing(self.id))
        differences = []
        for name, error in roundings.items():
            a, b, size = port[name], reference[name], norm(reference[name]) or 1.0
            if are_integers(b):
                differences.append(exactly(ArrayId(name), a, b, changing.get(name)))
                continue
            if name in unsure:
                a = np.where(unsure[name] & (np.abs(a - b) <= most), b, a)
            allowed = self.allowed(sides, name, b, {"measured rounding": error, "median": usual})
            item = allowed.compare(ArrayId(name), a, b)
            if item.verdict in (UNDECIDED, DIFFERS) and name in sides.only_rounding:
                item = part_of_stage(item, size, whole, usual)
            else:
                item = self.by_the_stage(sides, item, size, whole)
            differences.append(item)
        return Stage(self.id, differences)

    def allowed(
        self, sides: Sides, name: str, reference: np.ndarray, roundings: dict[str, float]
    ) -> Allowed:
        """Return the bound of one array."""
        return larger_bound(self.tolerance, roundings)

    def is_idle(self, sides: Sides, name: str, reference: np.ndarray) -> bool:
        """Return whether an array is left out, because the reference does not change it."""
        return False

    def unsure(self, sides: Sides, reference: Arrays) -> tuple[float, Arrays]:
        """Return how far the optimizer may change elements by chance, and masks of these elements by
        the array's name.
        """
        return 0.0, {}

    def by_the_stage(self, sides: Sides, item: Difference, size: float, whole: float) -> Difference:
        """Return the difference, as a part of the stage if the array alone decides nothing."""
        return item


@dataclasses.dataclass(frozen=True)
class Gradients(Parameters):
    """Compares gradients in the order of the backward pass, and which parameters have one."""

    def stage(self, sides: Sides) -> Stage:
        """Return the comparison, which fails if only one net trains a parameter."""
        gradients = [side.run.gradients for side in (sides.port, sides.reference)]
        hints = training_notes(sides.names, *gradients)
        return dataclasses.replace(self.compare(sides), hints=hints, failed="; ".join(hints))


@dataclasses.dataclass(frozen=True)
class Statistics(Parameters):
    """Compares BatchNorm's statistics and other untrained arrays."""

    def with_workers(self, stage: Stage, workers: PortWorkers) -> Stage:
        """Return the comparison, with the mean of the workers' own statistics."""
        stage = workers.without_moved(stage)
        # with dropout masks, only one update is made
        return workers.with_mean_of_statistics(stage) if stage.id == self.id else stage
