"""The result of one stage of the comparison."""

import dataclasses
from collections.abc import Sequence

from resnet_fn.parity.trace.difference import DIFFERS, UNDECIDED, VERDICTS, Difference
from resnet_fn.parity.trace.stages import StageId

SKIPPED = "skipped"


@dataclasses.dataclass(frozen=True)
class Stage:
    """The result of one stage of the comparison, for example of the loss or of the gradients."""

    id: StageId
    # one for each array, in the order of execution, of the backward pass or of updates
    differences: Sequence[Difference] = ()
    note: str = ""  # a remark, such as why the stage was skipped or is incomplete
    hints: Sequence[str] = ()  # possible causes
    failed: str = ""  # why the stage differs without an array to compare; empty otherwise
    undecided: str = ""  # why the stage's numbers decide nothing; empty otherwise
    # arrays that are left out, because float32 cannot show so small a change
    too_small: Sequence[str] = ()
    # whether the port's arrays are overwritten before anything is computed with them
    overwritten: bool = False

    @property
    def verdict(self) -> str:
        """The worst verdict of the differences, unless `failed` or `undecided` is set."""
        if self.failed or self.undecided:
            return DIFFERS if self.failed else UNDECIDED
        return max((item.verdict for item in self.differences), key=VERDICTS.index, default=SKIPPED)

    @property
    def unclear(self) -> Difference | None:
        """The first undecided array, or None if there is none or `undecided` has the reason."""
        undecided = (item for item in self.differences if item.verdict == UNDECIDED)
        return None if self.undecided else next(undecided, None)

    @property
    def worst(self) -> Difference | None:
        """The difference with the worst verdict and the largest `excess`, or None if there is
        none.
        """
        return max(
            self.differences,
            key=lambda item: (VERDICTS.index(item.verdict), item.excess),
            default=None,
        )

    @property
    def first(self) -> Difference | None:
        """The first difference with the verdict "DIFFERS", or None if the stage has none or is
        undecided.
        """
        differing = (item for item in self.differences if item.verdict == DIFFERS)
        return next(differing, None) if self.verdict == DIFFERS else None


def with_note(stage: Stage, note: str) -> Stage:
    """Return the stage with one more remark."""
    return dataclasses.replace(stage, note="; ".join(filter(None, (stage.note, note))))


def without_undecided(stage: Stage) -> Stage:
    """Return the stage without its undecided arrays. Its note has their number."""
    decided = [item for item in stage.differences if item.verdict != UNDECIDED]
    lost = len(stage.differences) - len(decided)
    if not lost:
        return stage
    words = f"without {lost} arrays that have too much rounding in the reference"
    return with_note(dataclasses.replace(stage, differences=decided), words)
