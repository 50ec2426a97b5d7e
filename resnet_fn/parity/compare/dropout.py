"""Compare the probability, the mask's shape and the scale of each dropout."""

import math
from collections import Counter
from collections.abc import Mapping

from resnet_fn.config.hints import few
from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.trace.data import Drop, Trace
from resnet_fn.parity.trace.difference import DIFFERS, difference
from resnet_fn.parity.trace.masks import pair_drops

DROPOUT = "dropout"


def dropout_stage(ours: Trace, theirs: Trace, names: Mapping[str, str]) -> Stage:
    """Compare the probability, the mask's shape and the scale of each dropout in both nets."""
    if ours.drops is None or theirs.drops is None:
        missing = "one trace does not contain the net's dropout; record that trace again"
        return Stage(DROPOUT, undecided=missing if ours.drops or theirs.drops else "")
    every = (*ours.drops, *theirs.drops)
    idle = [
        Counter(round(one.share, 6) for one in side.drops or () if one.once is None)
        for side in (ours, theirs)
    ]
    stage, by_share, shares = Stage(DROPOUT), [], []
    for own, other in pair_drops(ours.dropping, theirs.dropping, names):
        x, y = (one or Drop("", 0.0, True) for one in (own, other))
        (a, b), title = (x.share, y.share), x.title or y.title
        # the side with 0 may drop as much in a function
        if 0 in (a, b) and idle[a > 0][round(a or b, 6)]:
            idle[a > 0][round(a or b, 6)] -= 1
            a = b = a or b
        stage.differences.append(difference(title, a, b, tolerance=1e-6))
        if stage.differences[-1].verdict == DIFFERS:
            keeps = f": nn.Dropout({b:g}) keeps {b:g} in MindSpore; write nn.Dropout(p={b:g})"
            shares.append(
                f"{title}: p={a:g} here, {b:g} in the "
                f"reference{keeps if math.isclose(a, 1 - b) else ''}"
            )
        elif not x.scale or not y.scale:
            by_share.append(title)
        elif math.prod(x.shape) != math.prod(y.shape):
            stage.hints.append(
                f"{title}: drops {_words(x.shape)} here, {_words(y.shape)} in the reference"
            )
        elif not math.isclose(x.scale, y.scale, rel_tol=1e-4):
            words = f"multiplies what it keeps by {x.scale:g} here, {y.scale:g} in the reference"
            stage.hints.append(f"{title}: {words}")
    stage.failed = "; ".join(stage.hints)
    stage.hints = [*shares, *stage.hints]
    stage.note = (
        f"without a mask, only the probability is compared: {few(by_share)}" if by_share else ""
    )
    functions = ours.random_train or theirs.random_train or any(one.once is False for one in every)
    wrong = [item for item in stage.differences if item.verdict == DIFFERS]
    if (
        functions
        and wrong
        and not stage.failed
        and all(0 in (item.ours, item.theirs) for item in wrong)
    ):
        stage.undecided = f"{'; '.join(shares)}; where p=0, a function call may apply this dropout"
    return stage


def _words(shape: tuple[int, ...]) -> str:
    """Describe what a mask of this shape drops, for example "channels (a mask [4, 8, 1, 1])"."""
    kind = "elements" if 1 not in shape[1:] else "samples" if set(shape[1:]) == {1} else "channels"
    return f"{kind} (a mask {list(shape)})"
