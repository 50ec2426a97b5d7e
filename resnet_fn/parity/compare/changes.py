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
import math
from collections.abc import Sequence

import numpy as np

from resnet_fn.parity.compare.allowed import (
    CHANGES_TOLERANCE,
    OUTPUTS_TOLERANCE,
    VALUE_TOLERANCE,
    Sizes,
    change_bound,
    random_walk_norm,
)
from resnet_fn.parity.compare.chance import CHANCE_MOVES, ByChance
from resnet_fn.parity.compare.measures import as_fraction, as_zero_in_reference
from resnet_fn.parity.compare.parameters import (
    TOO_SMALL,
    ComparedArray,
    Numbers,
    Parameters,
    TooSmall,
)
from resnet_fn.parity.compare.sides import Sides, at_most_decayed
from resnet_fn.parity.compare.stage import Absent, Stage, with_note, without_undecided
from resnet_fn.parity.compare.workers import PortWorkers
from resnet_fn.parity.trace import reasons
from resnet_fn.parity.trace.difference import (
    DIFFERS,
    UNDECIDED,
    Difference,
    norm,
)
from resnet_fn.parity.trace.limits import CEILING, ROUNDING_FACTOR
from resnet_fn.parity.trace.stages import AVERAGE, CHANGE, LAST, STATISTICS, ArrayId, StageId
from resnet_fn.parity.trace.tree import Arrays


@dataclasses.dataclass(frozen=True)
class Changes(Parameters):
    """Compares how far updates have moved arrays, relative to each array's own change.

    A value would hide its change: a moving average of weights moves by a millionth of them.
    """

    tolerance: float = CHANGES_TOLERANCE
    # The tolerance relative to the array's value. It also limits that of an untrained array. A
    # change that rounding makes undecided is compared by it instead. None: the value allows and
    # limits nothing, and such a change stays undecided.
    value_tolerance: float | None = None

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

    def is_idle(self, sides: Sides, name: str, port: np.ndarray, reference: np.ndarray) -> bool:
        """Return whether a weight has no gradient, is not changed by the reference, and is at most
        decayed by the port: no number moves away from 0.
        """
        if name not in sides.without_gradient or reference.any():
            return False
        start = sides.port.run.start[name]
        return at_most_decayed(start, start + port)

    def moved_by_chance(self, sides: Sides, reference: Arrays) -> ByChance:
        """Return a multiple of the largest change of a weight, and masks of the elements that chance
        may move so far apart; nothing for the recipe's SGD.
        """
        if not sides.reference.plan.optimizer.is_adaptive:
            return ByChance(0.0, {})
        changes = (reference[name] for name in sides.port.run.gradients if name in reference)
        largest = max((float(np.abs(change).max(initial=0)) for change in changes), default=0.0)
        return ByChance(CHANCE_MOVES * largest, self.chance_elements(sides) if largest else {})

    def chance_elements(self, sides: Sides) -> Arrays:
        """Return which elements' gradients are only rounding."""
        return sides.chance_on_any_batch

    def differences(self, sides: Sides, array: ComparedArray) -> Sequence[Difference | TooSmall]:
        """Return the differences of the usual and of the large numbers, if there are large ones."""
        return [self._of_part(sides, *part) for part in array.parts()]

    def _of_part(
        self, sides: Sides, array: ComparedArray, numbers: Numbers
    ) -> Difference | TooSmall:
        """Return the difference by the first of these measures that applies; `_by_coarser_measure`
        has 5 to 7:

        1. The port alone moves the array: `_of_port_alone`. A move by at most four times what the
           last places of `numbers` add up to is none.
        2. The array does not pass, and its gradient is only rounding: as a part of the stage.
        3. float32 hides the change, of a trained array even as a part of all changes: left out,
           though it may pass.
        4. The change itself decides, for which the last places of `numbers` count as rounding.
        5. float32 hides the change beside the array alone: as a part of all changes.
        6. The stage has a tolerance relative to values: as a part of the array's value.
        7. The change stays undecided.

        No smaller error is judged harder than a larger one: what passes by another measure passes
        with any smaller error, too.
        """
        # 1
        sizes = self._sizes(sides, array, numbers)
        if not array.reference.any() and norm(array.port) <= ROUNDING_FACTOR * sizes.unit:
            array = array._replace(port=array.reference)
        value_tolerance = self._tolerance_of_value(sides, array)
        item = array.compare(change_bound(sizes, self.tolerance, value_tolerance, array.roundings))
        if array.port.any() and not array.reference.any():
            return self._of_port_alone(sides, array, item)
        # 2
        if as_only_rounding := array.as_only_rounding(item):
            return as_only_rounding
        # 3. An array that differs in spite of its last place is not hidden; one that passes may be.
        may_be_hidden = item.verdict != DIFFERS and _own_change_is_hidden(sizes)
        if may_be_hidden and self._is_too_small(sides, array, sizes):
            return TOO_SMALL
        # 4
        if item.verdict != UNDECIDED:
            return item
        return self._by_coarser_measure(array, item, sizes)

    def _by_coarser_measure(
        self, array: ComparedArray, item: Difference, sizes: Sizes
    ) -> Difference:
        """Return the difference of an undecided change beside more than itself: 5 to 7."""
        # 5. Without a tolerance: nothing but rounding excuses what is seen so coarsely. `whole` is
        # above 0: the array is trained, or it would be left out, and it has a change.
        if _own_change_is_hidden(sizes):
            fraction = sizes.change / array.of_stage.whole
            return as_fraction(item, fraction, 0.0, reasons.UNIT_OF_STAGE)
        # 6. Also of a trained array
        if sizes.value and self.value_tolerance is not None:
            fraction = sizes.change / sizes.value
            return as_fraction(item, fraction, self.value_tolerance, reasons.PART_OF_VALUE)
        # 7
        return item

    def _of_port_alone(self, sides: Sides, array: ComparedArray, item: Difference) -> Difference:
        """Return the difference of an array that the reference keeps, but the port moves.

        A relative error would need a change of the reference's. If float64 or noise give the array
        a gradient, rounding hides the reference's change in float32, and the move is compared as a
        part of the stage, however small it is. Any other move is wrong, however small: a
        gradient that is zeros wherever it was measured has no rounding.
        """
        is_hidden = array.only_rounding and array.id.name not in sides.zero_gradient
        if is_hidden and array.of_stage.whole and math.isfinite(item.relative):
            return array.as_part_of_stage(item)
        return as_zero_in_reference(item)

    def _sizes(self, sides: Sides, array: ComparedArray, numbers: Numbers) -> Sizes:
        """Return the norms of `numbers` that decide how their change is compared."""
        # the port has the reference's weights, so its start is taken
        start = sides.port.run.start[array.id.name][numbers]
        change = array.reference[numbers]
        value = norm(start + change)
        unit = random_walk_norm(self.updates(sides), max(norm(start), value))
        return Sizes(norm(change), value, unit)

    def _tolerance_of_value(self, sides: Sides, array: ComparedArray) -> float | None:
        """Return `value_tolerance`, or None if the array is trained: only its change counts in the
        bound.
        """
        return None if self._is_trained(sides, array) else self.value_tolerance

    def _is_trained(self, sides: Sides, array: ComparedArray) -> bool:
        """Return whether an array has a gradient in the port."""
        return array.id.name in sides.port.run.gradients

    def _is_too_small(self, sides: Sides, array: ComparedArray, sizes: Sizes) -> bool:
        """Return whether a change that float32 hides beside the array itself is left out.

        That of a trained array is, if float32 hides it as a part of all changes, too; not if all
        rates are 0, when a weight rightly keeps its value. That of an untrained array is left out
        if the reference changes it at all: no other array shows how small it may be.
        """
        if not self._is_trained(sides, array):
            return sizes.change > 0  # 0: the port keeps it, too (`_of_port_alone` otherwise)
        rates = sides.reference.run.rates[: self.updates(sides)]
        return sizes.unit > CEILING * array.of_stage.whole and any(rates)


def _own_change_is_hidden(sizes: Sizes) -> bool:
    """Return whether an array's last place may hide its change: four times the last place, which
    passes, is above 1/16 of the change. So the last place is above 1/64 of it.
    """
    return ROUNDING_FACTOR * sizes.unit > CEILING * sizes.change


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
    value_tolerance: float = OUTPUTS_TOLERANCE

    def compared(self, sides: Sides) -> Sequence[str]:
        """Return the arrays that have no gradient."""
        return sides.compared.rest

    def moved_by_chance(self, sides: Sides, reference: Arrays) -> ByChance:
        """Return nothing: no optimizer changes these arrays."""
        return ByChance(0.0, {})

    def with_workers(self, stage: Stage, workers: PortWorkers) -> Stage:
        """Return the comparison, with the mean of the workers' own statistics."""
        stage = workers.without_moved(stage)
        # the workers' own statistics are those of update 1 without dropout masks
        return workers.with_mean_of_statistics(stage) if stage.id == self.id else stage


@dataclasses.dataclass(frozen=True)
class ChangesByTraining(Changes):
    """Compares changes by several updates, about which rounding may decide."""

    value_tolerance: float = VALUE_TOLERANCE

    def as_far_as_decided(self, sides: Sides, stage: Stage) -> Stage:
        """Return the stage without undecided arrays if rounding decides about later updates.

        Its note is then a line of `not exercised`, also if other arrays decide.
        """
        if stage.first_undecided is None or not sides.is_chaotic:
            return stage
        return dataclasses.replace(without_undecided(stage), absent=Absent.CHAOTIC)

    def with_workers(self, stage: Stage, workers: PortWorkers) -> Stage:
        """Return the comparison without BatchNorm's statistics."""
        return workers.without_moved(stage)


_FEWEST_UPDATES = 2  # that show how much momentum is kept


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
            stage_id = dataclasses.replace(self.id, update=_FEWEST_UPDATES)
            note = "one update does not show how much momentum is kept; give two or more updates"
            return Stage(stage_id, note=note, absent=Absent.TOO_SHORT)
        return self.as_far_as_decided(sides, self._last_decided(sides))

    def _last_decided(self, sides: Sides) -> Stage:
        """Return the comparison after the last recorded update or, if rounding decides the
        training, after the last update after which an array differs or all arrays are decided.
        """
        # If no update is decided, the earliest that was looked at is shown; `as_far_as_decided` then
        # leaves its undecided arrays out.
        updates = self.updates(sides)
        last = dataclasses.replace(self.id, update=max(_FEWEST_UPDATES, updates))
        stage = dataclasses.replace(self.compare(sides), id=last)
        for update in range(updates - 1, _FEWEST_UPDATES - 1, -1):
            earlier = dataclasses.replace(self.id, update=update)
            if not self._needs_earlier(sides, stage, earlier):
                break
            stage = with_note(self.compare(sides.until(update)), Absent.CHAOTIC.value)
            stage = dataclasses.replace(stage, id=earlier)
        return stage

    def _needs_earlier(self, sides: Sides, stage: Stage, earlier: StageId) -> bool:
        """Return whether rounding leaves a stage undecided, and how far it moves the arrays after
        an earlier update is known.
        """
        if stage.first_undecided is None or stage.verdict == DIFFERS:
            return False
        return bool(sides.rounding_of_stage(earlier))


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
        return self.as_far_as_decided(sides, self.compare(sides)) if exists else None
