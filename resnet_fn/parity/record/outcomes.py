"""Count the different results of several runs with a dropout that drops whole paths of a net.

Each such result stands for what was dropped and what was kept, so both sides must give the same
ones, however rarely each comes.
"""

from collections.abc import Sequence

import numpy as np

from resnet_fn.parity.trace.data import Outcomes
from resnet_fn.parity.trace.difference import norm

RUNS_BEFORE = 32  # if all results of so many runs are different, no whole paths are dropped

_SAME = 1e-4  # results of the same paths are not further apart, in parts of the output's square


def outcomes_of(outputs: Sequence[np.ndarray], y: np.ndarray) -> tuple[Outcomes, ...]:
    """Return the different results of the whole output and of its first sample.

    `y` is the output without dropout.
    """
    whole = norm(y) ** 2
    if not whole or y.ndim < 1:
        return ()
    if any(output.shape != y.shape for output in outputs):
        return ()
    firsts = [output[:1] for output in outputs]
    return (
        _of_part(outputs, y, whole),
        _of_part(firsts, y[:1], whole),
    )


def repeat(outputs: Sequence[np.ndarray], y: np.ndarray) -> bool:
    """Return whether the whole output, or its first sample, has the same result in any two runs."""
    count = len(outputs)
    return any(len(part.seen) < count for part in outcomes_of(outputs, y))


def _of_part(outputs: Sequence[np.ndarray], y: np.ndarray, whole: float) -> Outcomes:
    size = norm(y) ** 2
    if not size:
        return Outcomes(0.0, ())
    parts: list[float] = []
    changes: list[float] = []
    counts: list[int] = []
    for output in outputs:
        product = float(np.vdot(output, y))
        part = product / size
        change = norm(output - y) ** 2 / size
        index = _index(part, change, parts, changes)
        if index < len(counts):
            counts[index] += 1
        else:
            parts.append(part)
            changes.append(change)
            counts.append(1)
    seen = zip(parts, changes, counts, strict=True)
    return Outcomes(size / whole, tuple(seen))


def _index(part: float, change: float, parts: list[float], changes: list[float]) -> int:
    """Return the index of a result among those seen so far; their number: it is a new one."""
    for index, known in enumerate(parts):
        apart = abs(known - part)
        change_apart = abs(changes[index] - change)
        if max(apart, change_apart) <= _SAME:
            return index
    return len(parts)
