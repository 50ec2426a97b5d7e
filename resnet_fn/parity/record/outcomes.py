"""Count the different results of several runs with a dropout that drops whole paths of a net.

Each such result stands for what was dropped and what was kept, so both sides must give the same
ones, however rarely each comes.
"""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from resnet_fn.parity.record.responses import part_and_change
from resnet_fn.parity.trace.difference import norm
from resnet_fn.parity.trace.drop import Outcomes

RUNS_BEFORE = 32  # if all results of so many runs are different, no whole paths are dropped

_DIGITS = 5  # results of the same paths are equal in so many digits after the point


def outcomes_of(outputs: Sequence[np.ndarray], y: np.ndarray) -> tuple[Outcomes, ...]:
    """Return the different results of the whole output and of its first sample, unless that is 0.

    `y` is the output without dropout.
    """
    whole = norm(y) ** 2
    if not whole or y.ndim < 1:
        return ()
    if any(output.shape != y.shape for output in outputs):
        return ()
    if any(output.dtype.kind != "f" for output in outputs):
        return ()
    firsts = [output[:1] for output in outputs]
    outcomes = []
    parts = (
        (outputs, y),
        (firsts, y[:1]),
    )
    for several, without in parts:
        size = norm(without) ** 2
        if not size:
            continue
        results: Counter[tuple[float, float]] = Counter()
        for output in several:
            part, change = part_and_change(output, without, size)
            if not math.isfinite(part + change):
                return ()
            results[_rounded(part, change)] += 1
        seen = [(*result, count) for result, count in results.items()]
        outcomes.append(Outcomes(size / whole, tuple(seen), y.shape))
    return tuple(outcomes)


def repeat(outputs: Sequence[np.ndarray], y: np.ndarray) -> bool:
    """Return whether the whole output, or its first sample, has the same result in two runs, and
    another one in a third run.
    """
    count = len(outputs)
    return any(1 < len(part.seen) < count for part in outcomes_of(outputs, y))


def _rounded(part: float, change: float) -> tuple[float, float]:
    """Return a result with few digits, which do not depend on any other result."""
    largest = max(1.0, abs(part), change)
    digits = _DIGITS - math.floor(math.log10(largest))
    return round(part, digits), round(change, digits)
