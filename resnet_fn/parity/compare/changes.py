"""Rules for what updates change: by update 1, by all updates, and the moving average.

Parameters                    one array for each parameter or statistic (parameters.py)
└ Changes                     how far updates have moved it
  ├ ChangeByFirstUpdate       each weight, by update 1
  ├ StatisticsByFirstUpdate   each untrained array, by update 1
  └ ChangesByTraining         by several updates, about which rounding may decide
    ├ ChangeByAllUpdates      each array, by all recorded updates
    └ ChangeOfAverage         the moving average, by all updates
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from resnet_fn.parity.compare import allowed
from resnet_fn.parity.compare.allowed import (
    Sizes,
    as_part,
    as_zero_in_reference,
    change_bound,
    random_walk_norm,
)
from resnet_fn.parity.compare.parameters import Case, Parameters
from resnet_fn.parity.compare.sides import Sides
from resnet_fn.parity.compare.stage import Absent, Stage, with_note, without_undecided
from resnet_fn.parity.compare.workers import PortWorkers
from resnet_fn.parity.trace import reasons
from resnet_fn.parity.trace.difference import (
    DIFFERS,
    UNDECIDED,
    Difference,
    norm,
    without_large,
)
from resnet_fn.parity.trace.limits import CEILING, ROUNDING_FACTOR
from resnet_fn.parity.trace.stages import AVERAGE, CHANGE, LAST, STATISTICS, ArrayId, StageId
from resnet_fn.parity.trace.tree import Arrays


@dataclasses.dataclass(frozen=True)
class Changes(Parameters):
    """Compares how far updates have moved arrays, relative to each array's own change.

    A value would hide its change: a moving average of weights moves by a millionth of them.
    """

    tolerance: float = allowed.CHANGES_TOLERANCE
    # A fraction of an array's value, which is used twice: it limits the tolerance of an untrained
    # array (`difference`), and is the tolerance of a change that rounding makes undecided
    # (`_by_another_measure`, 3). 0: the stage has neither, and no untrained arrays.
    value_tolerance: float = 0.0

    def updates(self, sides: Sides) -> int:
        """Return the number of updates that have made the change."""
        return 1

    def array_id(self, name: str) -> ArrayId:
        """Return the id of an array's change."""
        return ArrayId(name, change=True)

    def compare(self, sides: Sides) -> Stage:
        """Compare the changes, without those that are too small for float32."""
        stage = super().compare(sides)
        if stage.differences or not stage.too_small:
            return stage
        # a line of what was not exercised names the arrays
        stage = dataclasses.replace(stage, absent=Absent.NOT_IN_TASK)
        return with_note(stage, "the changes are too small for float32")

    def is_idle(self, sides: Sides, name: str, reference: np.ndarray) -> bool:
        """Return whether a weight has no gradient, is not changed by the reference, and is at most
        decayed by the port.
        """
        return name in sides.at_most_decayed and not reference.any()

    def moved_by_chance(self, sides: Sides, reference: Arrays) -> tuple[float, Arrays]:
        """Return twice the largest change of a weight, and masks of the elements that the optimizer
        may change so far by chance; nothing for the recipe's SGD.
        """
        if not sides.reference.plan.optimizer.is_adaptive:
            return 0.0, {}
        changes = (reference[name] for name in sides.port.run.gradients if name in reference)
        largest = max((float(np.abs(one).max(initial=0)) for one in changes), default=0.0)
        return 2 * largest, self.chance_elements(sides) if largest else {}

    def chance_elements(self, sides: Sides) -> Arrays:
        """Return which elements' gradients are only rounding."""
        return sides.chance_on_any_batch

    def difference(self, sides: Sides, case: Case) -> Difference | None:
        """Return the difference, which may be as large as the last place of the array.

        What the reference keeps may move by rounding in the port. Where a change's own norm decides
        nothing, it is compared by another measure.
        """
        start, reference = sides.port.run.start[case.id.name], case.reference
        value = norm(start + reference)
        unit = random_walk_norm(self.updates(sides), max(norm(start), value))
        if not reference.any() and norm(case.port) <= ROUNDING_FACTOR * unit:
            case = case._replace(port=reference)  # only rounding moves what the reference keeps
        sizes = Sizes(norm(without_large(reference)), value, unit)
        trained = case.id.name in sides.port.run.gradients
        of_value = None if trained else self.value_tolerance  # None: only the change counts
        bound = change_bound(sizes, self.tolerance, of_value, case.roundings, case.large)
        item = case.compare(bound)
        return case.as_rounding(item) or self._by_another_measure(sides, case, sizes, item)

    def _by_another_measure(
        self, sides: Sides, case: Case, sizes: Sizes, item: Difference
    ) -> Difference | None:
        """Return the difference as it is or, if the change's own norm decides nothing, by another
        measure:

        1. The reference keeps the array, but the port moves it: all of the change is wrong.
        2. The array's last place may hide the change. If it hides even a part of all changes, the
           array is left out (None). If the array is undecided, it is compared as such a part.
        3. The array is undecided by its measured rounding: if there is a `value_tolerance`, it is
           compared as a part of its value.
        """
        change, value, _ = sizes
        # 1. A relative error needs a change of the reference's.
        if not change and case.port.any():
            return as_zero_in_reference(item)
        # 2. An array that differs in spite of its last place is not hidden.
        hidden = item.verdict != DIFFERS and _last_place_hides(sizes)
        if hidden and self._too_small(sides, case, sizes):
            return None
        if item.verdict != UNDECIDED:
            return item
        if hidden:  # without a tolerance: nothing but rounding excuses what is seen this coarsely
            return as_part(item, change / case.whole, 0.0, reasons.UNIT_OF_STAGE)
        # 3. Rounding that is large beside the change may be small beside the value.
        if value and self.value_tolerance:
            return as_part(item, change / value, self.value_tolerance, reasons.PART_OF_VALUE)
        return item

    def _too_small(self, sides: Sides, case: Case, sizes: Sizes) -> bool:
        """Return whether float32 hides a change, even as a part of all changes.

        An untrained array may rightly keep its value, and so may a weight if all rates are 0.
        """
        if case.id.name not in sides.port.run.gradients:
            return sizes.change > 0
        rates = sides.reference.run.rates[: self.updates(sides)]
        return sizes.unit > CEILING * case.whole and any(rates)


def _last_place_hides(sizes: Sizes) -> bool:
    """Return whether an array's last place may hide its change: four times the last place, which
    passes, is above 1/16 of the change. So the last place is above 1/64 of it.
    """
    return ROUNDING_FACTOR * sizes.unit > CEILING * sizes.change


@dataclasses.dataclass(frozen=True)
class ChangesByTraining(Changes):
    """Compares changes by several updates, about which rounding may decide."""

    value_tolerance: float = allowed.GRADIENTS_TOLERANCE

    def as_far_as_decided(self, stage: Stage, sides: Sides) -> Stage:
        """Return the stage without undecided arrays if rounding decides about later updates."""
        if stage.first_undecided is None or not sides.is_chaotic:
            return stage
        return dataclasses.replace(without_undecided(stage), absent=Absent.CHAOTIC)

    def with_workers(self, stage: Stage, workers: PortWorkers) -> Stage:
        """Return the comparison without BatchNorm's statistics."""
        return workers.without_moved(stage)


@dataclasses.dataclass(frozen=True)
class ChangeByAllUpdates(ChangesByTraining):
    """Compares the changes of all arrays by all recorded updates, and with it momentum."""

    id: StageId = LAST

    def updates(self, sides: Sides) -> int:
        """Return the number of recorded updates."""
        return len(sides.port.run.after)

    def stage(self, sides: Sides) -> Stage:
        """Return the comparison, under the number of the last update that is compared."""
        if self.updates(sides) == 1:
            of_update = dataclasses.replace(self.id, update=2)
            note = "one update does not show how much momentum is kept; give two or more updates"
            return Stage(of_update, note=note, absent=Absent.TOO_SHORT)
        return self.as_far_as_decided(self._last_decided(sides), sides)

    def _last_decided(self, sides: Sides) -> Stage:
        """Return the comparison after the last recorded update or, if rounding decides the
        training, after the last update after which an array differs or all arrays are decided.
        """
        updates = self.updates(sides)
        stage = self.compare(sides)
        of_update = dataclasses.replace(self.id, update=max(2, updates))
        for update in range(updates - 1, 1, -1):
            earlier = dataclasses.replace(self.id, update=update)
            if (
                stage.first_undecided is None
                or stage.verdict == DIFFERS
                or not sides.rounding_of_stage(earlier)
            ):
                break
            stage, of_update = self.compare(sides.until(update)), earlier
            stage = with_note(stage, Absent.CHAOTIC.value)
        return dataclasses.replace(stage, id=of_update)


@dataclasses.dataclass(frozen=True)
class ChangeOfAverage(ChangesByTraining):
    """Compares how far the moving average is from the first weights, if there is an average."""

    id: StageId = AVERAGE

    def updates(self, sides: Sides) -> int:
        """Return the number of all updates."""
        return len(sides.port.run.losses)

    def stage(self, sides: Sides) -> Stage | None:
        """Return the comparison, or None if neither side has an average."""
        exists = sides.reference.run.average or sides.port.run.average
        return self.as_far_as_decided(self.compare(sides), sides) if exists else None


@dataclasses.dataclass(frozen=True)
class ChangeByFirstUpdate(Changes):
    """Compares how update 1 changes each weight."""

    id: StageId = CHANGE

    def compared(self, sides: Sides) -> Sequence[str]:
        """Return the arrays that have a gradient."""
        return sides.compared.trained

    def array_id(self, name: str) -> ArrayId:
        """Return the id of a weight: the title of the stage has the word "change"."""
        return ArrayId(name)

    def chance_elements(self, sides: Sides) -> Arrays:
        """Return which elements' gradients are only rounding on the first batch."""
        return sides.chance_on_first_batch


@dataclasses.dataclass(frozen=True)
class StatisticsByFirstUpdate(Changes):
    """Compares how update 1 changes BatchNorm's statistics and other untrained arrays."""

    id: StageId = STATISTICS
    value_tolerance: float = allowed.OUTPUTS_TOLERANCE

    def compared(self, sides: Sides) -> Sequence[str]:
        """Return the arrays that have no gradient."""
        return sides.compared.rest

    def moved_by_chance(self, sides: Sides, reference: Arrays) -> tuple[float, Arrays]:
        """Return nothing: no optimizer changes these arrays."""
        return 0.0, {}

    def with_workers(self, stage: Stage, workers: PortWorkers) -> Stage:
        """Return the comparison, with the mean of the workers' own statistics."""
        stage = workers.without_moved(stage)
        # with dropout masks, only one update is made
        return workers.with_mean_of_statistics(stage) if stage.id == self.id else stage
