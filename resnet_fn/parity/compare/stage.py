"""The result of one stage of the comparison, and what undecided arrays do to it.

A stage differs if `failed` is set. Else it is undecided if `undecided` is set, for example because
a net draws random numbers there: then its arrays decide nothing. Else it differs if one of its
arrays differs, and is undecided if one of them is undecided (`Difference.verdict`). Without arrays,
`absent` has what it is.

Who sets `undecided` may look at the arrays first: outputs that were not read make a stage undecided
only if no array differs (`NetOutputs.stage`). Both fields may be emptied again: `failed` by
`undecided_if_random` (randomness.py), where random numbers may be the reason, if there are arrays
and no hints; `undecided` by `OtherRuns.stage` (other_runs.py), if other batches decide.

Where no single array matters, a rule sets undecided arrays apart (`set_apart`,
`without_undecided`), so that the others decide; if none is left, the stage is undecided or, by
some rules, skipped or left out.
docs/parity.md, "Undecided", has all steps.
"""

import dataclasses
import enum
import math
from collections.abc import Sequence

from resnet_fn.parity.trace.difference import DIFFERS, UNDECIDED, VERDICTS, Difference
from resnet_fn.parity.trace.stages import StageId

SKIPPED = "skipped"

NOT_RUN = "no update was made in the port"  # as a note of stages after an update


class Absent(enum.Enum):
    """Why a stage has no numbers. By three of the four reasons, it is skipped."""

    # no clipping, no BatchNorm, not asked for: nothing more is said
    NOT_IN_TASK = "the task has nothing to compare"
    # the stage's note is a line of "not exercised"
    TOO_SHORT = "too few updates"
    # its note is a line of "not exercised", also if some arrays are decided
    CHAOTIC = "rounding decides about later updates"
    # no tensors, no kernel: the stage is undecided; the default
    NOT_READ = "nothing was read or run"


@dataclasses.dataclass(frozen=True)
class Stage:
    """The result of one stage of the comparison, for example of the loss or of the gradients."""

    id: StageId
    # one for each array, in the order of execution, of the backward pass or of updates
    differences: Sequence[Difference] = ()
    note: str = ""  # a remark, such as why the stage was skipped or is incomplete
    # possible causes. They are more than words: if there are any, the table's row leaves out
    # `failed`, and `undecided_if_random` keeps it.
    hints: Sequence[str] = ()
    failed: str = ""  # why the stage differs without an array to compare; empty otherwise
    undecided: str = ""  # why the stage's numbers decide nothing; empty otherwise
    # arrays that are left out, because float32 cannot show so small a change
    too_small: Sequence[str] = ()
    # whether the port's arrays are overwritten before anything is computed with them
    overwritten: bool = False
    not_exercised: Sequence[str] = ()  # a line for each thing that the stage's numbers do not show
    absent: Absent = Absent.NOT_READ  # why there are no differences, if there are none
    # undecided arrays that do not make the stage undecided. If no array is left, `absent` decides
    left_out: Sequence[Difference] = ()

    @property
    def verdict(self) -> str:
        """The worst verdict of the differences, unless `failed` or `undecided` is set."""
        if self.failed or self.undecided:
            return DIFFERS if self.failed else UNDECIDED
        without = UNDECIDED if self.absent is Absent.NOT_READ else SKIPPED
        return max((item.verdict for item in self.differences), key=VERDICTS.index, default=without)

    @property
    def first_undecided(self) -> Difference | None:
        """The first undecided array, or None if there is none or `undecided` has the reason."""
        compared = self.differences or self.left_out
        undecided = (item for item in compared if item.verdict == UNDECIDED)
        return None if self.undecided else next(undecided, None)

    @property
    def reason(self) -> str:
        """Why the stage as a whole is undecided or skipped; empty if an array is the reason, unless
        all arrays are set apart: then it is the note about these.
        """
        if self.undecided or self.differences:
            return self.undecided
        return self.note or self.absent.value

    @property
    def worst(self) -> Difference | None:
        """The worst of the differences, or None if there is none."""
        return worst(self.differences)

    @property
    def first(self) -> Difference | None:
        """The first difference with the verdict "DIFFERS", or None if the stage has none or is
        undecided.
        """
        differing = (item for item in self.differences if item.verdict == DIFFERS)
        return next(differing, None) if self.verdict == DIFFERS else None


def worst(items: Sequence[Difference]) -> Difference | None:
    """Return the difference with the worst verdict and the largest `excess`, or None if there is
    none.
    """
    return max(items, key=lambda item: (VERDICTS.index(item.verdict), item.excess), default=None)


def with_note(stage: Stage, note: str) -> Stage:
    """Return the stage with one more remark."""
    return dataclasses.replace(stage, note="; ".join(filter(None, (stage.note, note))))


def not_in_task(stage: StageId, note: str) -> Stage:
    """Return a stage for which the task has nothing to compare."""
    return Stage(stage, note=note, absent=Absent.NOT_IN_TASK)


def may_be_set_apart(item: Difference) -> bool:
    """Return whether an array is undecided, and has a finite number: without one, no other array
    may decide for it.
    """
    return item.verdict == UNDECIDED and not math.isnan(item.relative)


def set_apart(stage: Stage, apart: Sequence[Difference], note: str) -> Stage:
    """Return the stage decided without the undecided arrays `apart`, with a note about these."""
    kept = [item for item in stage.differences if item not in apart]
    stage = dataclasses.replace(stage, differences=kept, left_out=[*stage.left_out, *apart])
    return with_note(stage, note)


def without_undecided(stage: Stage) -> Stage:
    """Return the stage decided by its other arrays, if some are undecided."""
    apart = list(filter(may_be_set_apart, stage.differences))
    if not apart:
        return stage
    many = "1 array that has" if len(apart) == 1 else f"{len(apart)} arrays that have"
    return set_apart(stage, apart, f"without {many} too much rounding in the reference")
