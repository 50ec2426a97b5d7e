"""Compare the probability, the mask's shape and the scale of each dropout."""

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence

from resnet_fn.config.hints import few
from resnet_fn.parity.compare.allowed import MASK_SCALE, SETTINGS, within
from resnet_fn.parity.compare.rule import Rule
from resnet_fn.parity.compare.sides import Sides
from resnet_fn.parity.compare.stage import SKIPPED, Stage
from resnet_fn.parity.trace.data import Drop, Trace
from resnet_fn.parity.trace.difference import DIFFERS, Difference
from resnet_fn.parity.trace.masks import pair_drops
from resnet_fn.parity.trace.stages import DROPOUT


@dataclasses.dataclass(frozen=True)
class Dropout(Rule):
    """Compares the dropouts of both nets, if there are any."""

    def stage(self, sides: Sides) -> Stage | None:
        """Return the comparison, or None if neither net drops anything."""
        stage = dropout_stage(sides.port, sides.reference, sides.names.layers)
        return None if stage.verdict == SKIPPED else stage


def dropout_stage(ours: Trace, theirs: Trace, names: Mapping[str, str]) -> Stage:
    """Compare the probability, the mask's shape and the scale of each dropout in both nets."""
    if ours.drops is None or theirs.drops is None:
        missing = "one trace does not contain the net's dropout; record that trace again"
        return Stage(DROPOUT, undecided=missing if ours.drops or theirs.drops else "")
    idle = [_idle_probabilities(side.drops or ()) for side in (ours, theirs)]
    differences, shares = list[Difference](), list[str]()
    by_share, masks = list[str](), list[str]()
    for own, other in pair_drops(ours.dropping, theirs.dropping, names):
        x, y = (one or Drop("", 0.0, True) for one in (own, other))
        (a, b), title = (x.share, y.share), x.title or y.title
        # the side with 0 may drop as much in a function
        if 0 in (a, b) and idle[a > 0][round(a or b, 6)]:
            idle[a > 0][round(a or b, 6)] -= 1
            a = b = a or b
        item = within(SETTINGS).compare(title, a, b)
        differences.append(item)
        if item.verdict == DIFFERS:
            keeps = f": nn.Dropout({b:g}) keeps {b:g} in MindSpore; write nn.Dropout(p={b:g})"
            inverted = keeps if math.isclose(a, 1 - b) else ""
            shares.append(f"{title}: p={a:g} here, {b:g} in the reference{inverted}")
        elif not x.scale or not y.scale:
            by_share.append(title)
        elif words := _difference_of_masks(x, y):
            masks.append(f"{title}: {words}")
    note = f"without a mask, only the probability is compared: {few(by_share)}" if by_share else ""
    undecided = ""
    if not masks and _may_be_functions(ours, theirs, differences):
        undecided = f"{'; '.join(shares)}; where p=0, a function call may apply this dropout"
    failed = "; ".join(masks)
    return Stage(DROPOUT, differences, note, [*shares, *masks], failed, undecided)


def _idle_probabilities(drops: Sequence[Drop]) -> Counter[float]:
    """Return how many dropouts with each probability did not run."""
    return Counter(round(one.share, 6) for one in drops if one.once is None)


def _difference_of_masks(ours: Drop, theirs: Drop) -> str:
    if math.prod(ours.shape) != math.prod(theirs.shape):
        return f"drops {_words(ours.shape)} here, {_words(theirs.shape)} in the reference"
    if not math.isclose(ours.scale, theirs.scale, rel_tol=MASK_SCALE):
        words = f"{ours.scale:g} here, {theirs.scale:g} in the reference"
        return f"multiplies what it keeps by {words}"
    return ""


def _may_be_functions(ours: Trace, theirs: Trace, differences: Sequence[Difference]) -> bool:
    """Return whether function calls may apply what one side's layers do not drop."""
    every = (*(ours.drops or ()), *(theirs.drops or ()))
    functions = ours.random_train or theirs.random_train or any(one.once is False for one in every)
    wrong = [item for item in differences if item.verdict == DIFFERS]
    return bool(functions and wrong) and all(0 in (item.ours, item.theirs) for item in wrong)


def _words(shape: tuple[int, ...]) -> str:
    """Describe what a mask of this shape drops, for example "channels (a mask [4, 8, 1, 1])"."""
    kind = "elements" if 1 not in shape[1:] else "samples" if set(shape[1:]) == {1} else "channels"
    return f"{kind} (a mask {list(shape)})"
