"""Rules for stages with changes: by update 1, by all updates, and of the moving average."""

import dataclasses

import numpy as np

from resnet_fn.parity.compare.allowed import (
    HALF_A_UNIT,
    TOO_SMALL,
    Allowed,
    larger_bound,
    part_of_value,
    unit_of_stage,
    zero_in_reference,
)
from resnet_fn.parity.compare.parameters import Parameters
from resnet_fn.parity.compare.sides import Sides
from resnet_fn.parity.compare.stage import Absent, Stage, with_note, without_undecided
from resnet_fn.parity.compare.workers import PortWorkers
from resnet_fn.parity.trace.difference import (
    DIFFERS,
    UNDECIDED,
    Difference,
    norm,
    without_large,
)
from resnet_fn.parity.trace.limits import CEILING, ROUNDING_FACTOR
from resnet_fn.parity.trace.stages import ArrayId
from resnet_fn.parity.trace.tree import Arrays


@dataclasses.dataclass(frozen=True)
class Changes(Parameters):
    """Compares how far updates have moved arrays, relative to each array's own change.

    A value would hide its change: a moving average of weights moves by a millionth of them.
    """

    # The tolerance of an untrained array relative to its value, if that is less than `tolerance`.
    # A change that rounding makes undecided is compared as a part of the value, too.
    of_value: float = 0.0

    def updates(self, sides: Sides) -> int:
        """Return the number of updates that have made the change."""
        return 1

    def array_id(self, name: str) -> ArrayId:
        """Return the id of an array's change."""
        return ArrayId(name, change=True)

    def compare(self, sides: Sides) -> Stage:
        """Compare the changes, without those that are too small for float32."""
        stage = super().compare(sides)
        names = [item.name for item in stage.differences if item.why == TOO_SMALL]
        if not names:
            return stage
        seen = [item for item in stage.differences if item.why != TOO_SMALL]
        stage = dataclasses.replace(stage, differences=seen, too_small=names)
        if seen:
            return stage
        # a line of what was not exercised names the arrays
        stage = dataclasses.replace(stage, absent=Absent.NOT_IN_TASK)
        return with_note(stage, "the changes are too small for float32")

    def is_idle(self, sides: Sides, name: str, reference: np.ndarray) -> bool:
        """Return whether a weight has no gradient, is not changed by the reference, and is at most
        decayed by the port.
        """
        return name in sides.at_most_decayed and not reference.any()

    def unsure(self, sides: Sides, reference: Arrays) -> tuple[float, Arrays]:
        """Return twice the largest change of a weight, and masks of the elements that the optimizer
        may change so far by chance; nothing for the recipe's SGD.
        """
        if not sides.reference.plan.optimizer.is_adaptive:
            return 0.0, {}
        changes = (reference[name] for name in sides.port.run.gradients if name in reference)
        largest = max((float(np.abs(one).max(initial=0)) for one in changes), default=0.0)
        return 2 * largest, self.masks(sides) if largest else {}

    def masks(self, sides: Sides) -> Arrays:
        """Return which elements' gradients are only rounding."""
        return sides.unsure_on_any_batch

    def allowed(
        self,
        sides: Sides,
        name: str,
        reference: np.ndarray,
        roundings: dict[str, float],
        large: float | None,
    ) -> Allowed:
        """Return the bound of one change: at least the last place of the array."""
        start = sides.port.run.start[name]
        size, tolerance = norm(without_large(reference)) or 1.0, self.tolerance
        if name not in sides.port.run.gradients:
            tolerance = min(tolerance, self.of_value * norm(start + reference) / size)
        unit = self._unit(sides, name, reference) / size
        return larger_bound(tolerance, {**roundings, "unit of the weight": unit}, large=large)

    def _unit(self, sides: Sides, name: str, reference: np.ndarray) -> float:
        """Return the rounding of a change.

        Each update rounds a weight by up to half a unit in the last place, as in a random walk.
        """
        start = sides.port.run.start[name]
        largest = max(norm(start), norm(start + reference))
        return self.updates(sides) ** 0.5 * HALF_A_UNIT * largest

    def without_rounding(
        self, sides: Sides, name: str, port: np.ndarray, reference: np.ndarray
    ) -> np.ndarray:
        """Return the port's change, or zeros if only rounding moves an array that the reference
        keeps.
        """
        if reference.any() or norm(port) > ROUNDING_FACTOR * self._unit(sides, name, reference):
            return port
        return reference

    def in_stage(
        self, sides: Sides, item: Difference, port: np.ndarray, reference: np.ndarray, whole: float
    ) -> Difference:
        """Return the difference, as a part of all changes if the weight's last place hides it."""
        name, size = item.name, norm(reference)
        if not size and port.any():
            return zero_in_reference(item)
        size = norm(without_large(reference)) or size
        unit = self._unit(sides, name, reference)
        hidden = item.verdict != DIFFERS and ROUNDING_FACTOR * unit > CEILING * size
        if hidden and self._too_small(sides, name, unit, size, whole):
            return dataclasses.replace(item, why=TOO_SMALL)
        if item.verdict != UNDECIDED:
            return item
        if hidden:
            return unit_of_stage(item, size / whole)
        value = norm(sides.port.run.start[name] + reference)
        return part_of_value(item, size / value, self.of_value) if value else item

    def _too_small(self, sides: Sides, name: str, unit: float, size: float, whole: float) -> bool:
        """Return whether float32 hides a change, even as a part of all changes.

        An untrained array may rightly keep its value, and so may a weight if all rates are 0.
        """
        if name not in sides.port.run.gradients:
            return size > 0
        return unit > CEILING * whole and any(sides.reference.run.rates[: self.updates(sides)])


def _as_far_as_decided(stage: Stage, sides: Sides) -> Stage:
    """Return the stage without undecided arrays if rounding decides about later updates."""
    if stage.unclear is None or not sides.is_chaotic:
        return stage
    return dataclasses.replace(without_undecided(stage), absent=Absent.CHAOTIC)


@dataclasses.dataclass(frozen=True)
class LastWeights(Changes):
    """Compares the changes of all arrays by all recorded updates, and with it momentum."""

    def updates(self, sides: Sides) -> int:
        """Return the number of recorded updates."""
        return len(sides.port.run.after)

    def stage(self, sides: Sides) -> Stage:
        """Return the comparison, under the number of the last recorded update.

        If rounding decides the training, it is the last update after which all arrays are decided.
        """
        updates = self.updates(sides)
        note = "one update does not show how much momentum is kept; give two or more updates"
        short = Stage(self.id, note=note, absent=Absent.TOO_SHORT)
        stage = short if updates == 1 else self.compare(sides)
        of_update = dataclasses.replace(self.id, update=max(2, updates))
        for update in range(updates - 1, 1, -1):
            earlier = dataclasses.replace(self.id, update=update)
            if stage.unclear is None or not sides.errors(earlier):
                break
            stage, of_update = self.compare(sides.until(update)), earlier
            stage = with_note(stage, Absent.CHAOTIC.value)
        return dataclasses.replace(_as_far_as_decided(stage, sides), id=of_update)

    def with_workers(self, stage: Stage, workers: PortWorkers) -> Stage:
        """Return the comparison without BatchNorm's statistics."""
        return workers.without_moved(stage)


@dataclasses.dataclass(frozen=True)
class AveragedWeights(Changes):
    """Compares how far the moving average is from the first weights, if there is an average."""

    def updates(self, sides: Sides) -> int:
        """Return the number of all updates."""
        return len(sides.port.run.losses)

    def stage(self, sides: Sides) -> Stage | None:
        """Return the comparison, or None if neither side has an average."""
        exists = sides.reference.run.average or sides.port.run.average
        return _as_far_as_decided(self.compare(sides), sides) if exists else None

    def with_workers(self, stage: Stage, workers: PortWorkers) -> Stage:
        """Return the comparison without BatchNorm's statistics."""
        return workers.without_moved(stage)


@dataclasses.dataclass(frozen=True)
class Change(Changes):
    """Compares how update 1 changes each weight."""

    def array_id(self, name: str) -> ArrayId:
        """Return the id of a weight: the title of the stage has the word "change"."""
        return ArrayId(name)

    def masks(self, sides: Sides) -> Arrays:
        """Return which elements' gradients are only rounding on the first batch."""
        return sides.unsure_on_first_batch


@dataclasses.dataclass(frozen=True)
class Statistics(Changes):
    """Compares how update 1 changes BatchNorm's statistics and other untrained arrays."""

    def unsure(self, sides: Sides, reference: Arrays) -> tuple[float, Arrays]:
        """Return nothing: no optimizer changes these arrays."""
        return 0.0, {}

    def with_workers(self, stage: Stage, workers: PortWorkers) -> Stage:
        """Return the comparison, with the mean of the workers' own statistics."""
        stage = workers.without_moved(stage)
        # with dropout masks, only one update is made
        return workers.with_mean_of_statistics(stage) if stage.id == self.id else stage
