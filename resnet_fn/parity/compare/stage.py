"""The result of one stage of the comparison."""

import dataclasses
from dataclasses import field

from resnet_fn.parity.trace.difference import DIFFERS, UNDECIDED, VERDICTS, Difference

SKIPPED = "skipped"


@dataclasses.dataclass
class Stage:
    """The result of one stage of the comparison, for example of the loss or of the gradients."""

    name: str  # "loss", "gradients", …
    # one for each array, in the order of execution, of the backward pass or of updates
    differences: list[Difference] = field(default_factory=list)
    note: str = ""  # a remark, such as why the stage was skipped or is incomplete
    hints: list[str] = field(default_factory=list)  # possible causes
    failed: str = ""  # why the stage differs without an array to compare; empty otherwise
    undecided: str = ""  # why the stage's numbers decide nothing; empty otherwise

    @property
    def verdict(self) -> str:
        """The worst verdict of the differences, unless `failed` or `undecided` is set."""
        if self.failed or self.undecided:
            return DIFFERS if self.failed else UNDECIDED
        return max((item.verdict for item in self.differences), key=VERDICTS.index, default=SKIPPED)

    @property
    def doubt(self) -> str:
        """The reason for the verdict "undecided", or an empty string."""
        doubts = (
            f"{item.name}: {item.doubt}" for item in self.differences if item.verdict == UNDECIDED
        )
        return self.undecided or next(doubts, "")

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


def sure(stage: Stage) -> Stage:
    """Remove the undecided arrays from a stage, add their number to `stage.note`, and return the
    stage.
    """
    decided = [item for item in stage.differences if item.verdict != UNDECIDED]
    if lost := len(stage.differences) - len(decided):
        stage.differences = decided
        stage.note += (
            f"{'; ' * bool(stage.note)}without {lost} arrays that have too much rounding "
            "in the reference"
        )
    return stage
