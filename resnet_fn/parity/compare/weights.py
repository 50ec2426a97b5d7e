"""Rules for stages with changed weights: after update 1, after the last one, and their average."""

import dataclasses

import numpy as np

from resnet_fn.parity.compare.allowed import (
    CHANGES,
    HALF_A_UNIT,
    Allowed,
    larger_bound,
    unit_of_stage,
)
from resnet_fn.parity.compare.parameters import Parameters
from resnet_fn.parity.compare.sides import Sides
from resnet_fn.parity.compare.stage import Absent, Stage
from resnet_fn.parity.compare.workers import PortWorkers
from resnet_fn.parity.trace.difference import Difference, norm
from resnet_fn.parity.trace.tree import Arrays


@dataclasses.dataclass(frozen=True)
class Weights(Parameters):
    """Compares weights after updates."""

    def before(self, sides: Sides, name: str) -> np.ndarray | float:
        """Return the value from which a weight's change is counted."""
        return sides.port.run.start[name]

    def is_idle(self, sides: Sides, name: str, reference: np.ndarray) -> bool:
        """Return whether a weight has no gradient and is not changed by the reference."""
        return name in sides.without_gradient and not (reference - self.before(sides, name)).any()

    def unsure(self, sides: Sides, reference: Arrays) -> tuple[float, Arrays]:
        """Return twice the largest change of a weight, and masks of the elements that the optimizer
        may change so far by chance; nothing for the recipe's SGD.
        """
        plan = sides.reference.plan
        if not plan.optimizer.is_adaptive:
            return 0.0, {}
        largest = max(
            float(np.abs(reference[name] - self.before(sides, name)).max(initial=0))
            for name in sides.port.run.gradients
            if name in reference
        )
        return 2 * largest, self.masks(sides) if largest else {}

    def masks(self, sides: Sides) -> Arrays:
        """Return which elements' gradients are only rounding."""
        return sides.unsure_on_any_batch

    def allowed(
        self, sides: Sides, name: str, reference: np.ndarray, roundings: dict[str, float]
    ) -> Allowed:
        """Return the bound of one weight: that of its change, if it is larger."""
        bound = larger_bound(self.tolerance, roundings)
        if name not in sides.port.run.gradients:
            return bound
        size = norm(reference) or 1.0
        change = CHANGES * norm(reference - sides.port.run.start[name]) / size
        if change > self.tolerance:
            return larger_bound(change, roundings, "tolerance of the change")
        return bound


@dataclasses.dataclass(frozen=True)
class LastWeights(Weights):
    """Compares all arrays after the last recorded update, and with it momentum."""

    def stage(self, sides: Sides) -> Stage:
        """Return the comparison, under the number of the last recorded update."""
        updates = len(sides.port.run.after)
        note = "one update does not show how much momentum is kept; give two or more updates"
        short = Stage(self.id, note=note, absent=Absent.TOO_SHORT)
        stage = short if updates == 1 else self.compare(sides)
        return dataclasses.replace(stage, id=dataclasses.replace(self.id, update=max(2, updates)))

    def with_workers(self, stage: Stage, workers: PortWorkers) -> Stage:
        """Return the comparison without BatchNorm's statistics."""
        return workers.without_moved(stage)


@dataclasses.dataclass(frozen=True)
class AveragedWeights(Weights):
    """Compares the moving average after the last update, if there is one."""

    def stage(self, sides: Sides) -> Stage | None:
        """Return the comparison, or None if neither side has an average."""
        exists = sides.reference.run.average or sides.port.run.average
        return self.compare(sides) if exists else None

    def with_workers(self, stage: Stage, workers: PortWorkers) -> Stage:
        """Return the comparison without BatchNorm's statistics."""
        return workers.without_moved(stage)


@dataclasses.dataclass(frozen=True)
class Change(Weights):
    """Compares how update 1 changes each weight."""

    def before(self, sides: Sides, name: str) -> float:
        """Return 0: the arrays are changes."""
        return 0.0

    def masks(self, sides: Sides) -> Arrays:
        """Return which elements' gradients are only rounding on the first batch."""
        return sides.unsure_on_first_batch

    def _unit(self, sides: Sides, name: str) -> float:
        """Return the rounding of a weight.

        The difference of two float32 weights has an error of half a unit in the last place.
        """
        return HALF_A_UNIT * norm(sides.port.run.start[name])

    def allowed(
        self, sides: Sides, name: str, reference: np.ndarray, roundings: dict[str, float]
    ) -> Allowed:
        """Return the bound of one change: at least the last place of its weight."""
        unit = self._unit(sides, name) / (norm(reference) or 1.0)
        return larger_bound(self.tolerance, {**roundings, "unit of the weight": unit})

    def by_the_stage(self, sides: Sides, item: Difference, size: float, whole: float) -> Difference:
        """Return the difference, as a part of all changes if the weight's last place hides it."""
        return unit_of_stage(item, self._unit(sides, item.name), size, whole)
