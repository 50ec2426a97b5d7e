"""Rules for stages with one array for each parameter or statistic."""

import dataclasses
import math
from typing import NamedTuple

import numpy as np

from resnet_fn.parity.compare import allowed
from resnet_fn.parity.compare.allowed import (
    NO_GRADIENT,
    Allowed,
    Sizes,
    capped_rounding,
    exactly,
    larger_bound,
    median_of_stage,
    part_of_stage,
    rounding_of,
    zero_in_reference,
)
from resnet_fn.parity.compare.rule import RunRule
from resnet_fn.parity.compare.sides import Sides
from resnet_fn.parity.compare.stage import NOT_RUN, Stage, not_in_task
from resnet_fn.parity.pair import name_map
from resnet_fn.parity.trace import reasons
from resnet_fn.parity.trace.difference import (
    DIFFERS,
    UNDECIDED,
    Difference,
    are_integers,
    norm,
)
from resnet_fn.parity.trace.stages import CLIPPED, GRADIENTS, WEIGHTS, ArrayId, StageId
from resnet_fn.parity.trace.tree import Arrays

_NO_CHANGE = Sizes(1.0, 0.0, 0.0)


class Case(NamedTuple):
    """One array of both sides, in the port's layout, while a rule compares it."""

    name: str
    port: np.ndarray
    reference: np.ndarray
    sizes: Sizes
    whole: float  # the norm of the stage's arrays that have a gradient


@dataclasses.dataclass(frozen=True)
class Parameters(RunRule):
    """Compares arrays under the port's names.

    `compare` goes through the arrays once. Subclasses change its steps, which are in this order:
    `is_idle`, `moved_by_chance`, `sizes`, `without_rounding`, `bound_of`, `in_stage`.
    """

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
        on_both = [name for name in names if name in port and name in reference]
        common = [name for name in on_both if not self.is_idle(sides, name, reference[name])]
        if not common:
            if on_both:
                return not_in_task(self.id, "nothing changes")
            return Stage(self.id, note="one side keeps none" if sides.port.run.after else NOT_RUN)
        measured = self._measured(sides, given, {name: reference[name] for name in common})
        median = median_of_stage([*measured.values()])
        of_large = sides.errors_of_large(self.id)
        # a counter of updates would be far larger than all weights
        trained = sides.port.run.gradients
        whole = math.hypot(*(norm(b) for name, b in reference.items() if name in trained))
        most, by_chance = self.moved_by_chance(sides, reference)
        changing = sides.names.rename(sides.changing(self.id))
        differences = []
        for name, rounding in measured.items():
            a, b = port[name], reference[name]
            if are_integers(b):
                differences.append(exactly(self.array_id(name), a, b, changing.get(name)))
                continue
            if name in by_chance:
                a = np.where(by_chance[name] & (np.abs(a - b) <= most), b, a)
            case = Case(name, a, b, self.sizes(sides, name, b), whole)
            case = case._replace(port=self.without_rounding(sides, case))
            large = [of_large[one] for one in sides.names.sources(name) if one in of_large]
            roundings = {reasons.MEASURED: rounding, reasons.MEDIAN: median}
            bound = self.bound_of(sides, case, roundings, max(large, default=None))
            item = bound.compare(self.array_id(name), case.port, b)
            unclear = item.verdict in (UNDECIDED, DIFFERS) and math.isfinite(item.relative)
            if unclear and name in sides.only_rounding:
                item = part_of_stage(item, norm(case.port - b), whole, median)
            else:
                item = self.in_stage(sides, case, item)
            differences.append(item)
        return Stage(self.id, differences)

    def _measured(self, sides: Sides, given: Arrays, reference: Arrays) -> dict[str, float]:
        """Return the measured rounding of each array of `reference`, built from `given`."""
        errors, roundings = sides.errors(self.id), {}
        for name, array in reference.items():
            error = rounding_of(sides.names, errors, name, given, array)
            if name not in sides.only_rounding:
                error = capped_rounding(sides.names, errors, name, error, self.tolerance)
            roundings[name] = error
        return roundings

    def array_id(self, name: str) -> ArrayId:
        """Return the id of the compared array of a parameter."""
        return ArrayId(name)

    def sizes(self, sides: Sides, name: str, reference: np.ndarray) -> Sizes:
        """Return the norms that decide how a change is compared: no others need them."""
        return _NO_CHANGE

    def bound_of(
        self, sides: Sides, case: Case, roundings: dict[str, float], large: float | None
    ) -> Allowed:
        """Return the bound of one array. `large` is the rounding of its large numbers, if known."""
        return larger_bound(self.tolerance, roundings, large=large)

    def is_idle(self, sides: Sides, name: str, reference: np.ndarray) -> bool:
        """Return whether an array is left out, because the reference does not change it."""
        return False

    def moved_by_chance(self, sides: Sides, reference: Arrays) -> tuple[float, Arrays]:
        """Return how far the optimizer may change elements by chance, and masks of these elements
        by the array's name.
        """
        return 0.0, {}

    def without_rounding(self, sides: Sides, case: Case) -> np.ndarray:
        """Return the port's array, with the reference's numbers where it has only rounding."""
        return case.port

    def in_stage(self, sides: Sides, case: Case, item: Difference) -> Difference:
        """Return the difference, by another measure if the array's own norm decides nothing."""
        return item


@dataclasses.dataclass(frozen=True)
class Gradients(Parameters):
    """Compares gradients in the order of the backward pass, and which arrays have none."""

    id: StageId = GRADIENTS
    names_beyond: bool = True
    tolerance: float = allowed.GRADIENTS
    which: str = "backward"
    made_of: str = name_map.GRADIENTS

    def without_rounding(self, sides: Sides, case: Case) -> np.ndarray:
        """Return the port's gradient, with zeros where it is small and the reference's is None."""
        none = sides.no_gradient.get(case.name)
        if none is None:
            return case.port
        owner = case.name.rpartition(".")[0]
        largest = max(
            float(np.abs(gradient).max(initial=0))
            for gradients in (self.values(sides.port.run), sides.gradients)
            for other, gradient in gradients.items()
            if other.rpartition(".")[0] == owner
        )
        return np.where(none & (np.abs(case.port) <= NO_GRADIENT * largest), 0, case.port)

    def in_stage(self, sides: Sides, case: Case, item: Difference) -> Difference:
        """Return the difference, of which all is wrong if the reference's gradient is None."""
        if case.name in sides.no_gradient and case.port.any() and not case.reference.any():
            return zero_in_reference(item)
        return item

    def stage(self, sides: Sides) -> Stage:
        """Return the comparison, with a line for each gradient that only the port has."""
        stage = self.compare(sides)
        words = "it has a gradient in the port; in the reference it has none (None)"
        hints = [
            f"{item.name}: {words}, so that no optimizer touches it"
            for item in stage.differences
            if item.verdict == DIFFERS and item.name in sides.no_gradient
        ]
        return dataclasses.replace(stage, hints=hints)


@dataclasses.dataclass(frozen=True)
class Clipped(Gradients):
    """Compares gradients after clipping."""

    id: StageId = CLIPPED
    names_beyond: bool = False


@dataclasses.dataclass(frozen=True)
class Weights(Parameters):
    """Compares the arrays with which both sides begin, bit for bit."""

    id: StageId = WEIGHTS
    trains: bool = False
    tolerance: float = allowed.EQUAL
