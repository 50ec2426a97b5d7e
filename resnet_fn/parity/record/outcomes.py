"""Tell apart the results of several runs with a dropout that drops whole paths of a net.

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
    if not whole or y.ndim < 1 or any(output.shape != y.shape for output in outputs):
        return ()
    return _of_part(outputs, y, whole), _of_part([one[:1] for one in outputs], y[:1], whole)


def repeat(outputs: Sequence[np.ndarray], y: np.ndarray) -> bool:
    """Return whether the first sample has the same result in any two runs."""
    return any(len(one.seen) < len(outputs) for one in outcomes_of(outputs, y))


def _of_part(outputs: Sequence[np.ndarray], y: np.ndarray, whole: float) -> Outcomes:
    size = norm(y) ** 2
    seen: list[tuple[float, float, int]] = []
    for output in outputs if size else ():
        part = float(np.vdot(output, y)) / size
        change = norm(output - y) ** 2 / size
        for index, (x, z, count) in enumerate(seen):
            if abs(x - part) <= _SAME and abs(z - change) <= _SAME:
                seen[index] = x, z, count + 1
                break
        else:
            seen.append((part, change, 1))
    return Outcomes(size / whole, tuple(seen))
