"""Compare whether initial numbers of an array depend on each other, as where filters are copies.

Moments of single numbers do not show that.
"""

import math
from collections.abc import Iterator

import numpy as np

from resnet_fn.parity.compare.draws import (
    LEAST_DEPENDENCE,
    MOST_STANDARD_ERRORS,
    has_heavy_tails,
)
from resnet_fn.parity.trace import reasons
from resnet_fn.parity.trace.difference import Difference
from resnet_fn.parity.trace.stages import ArrayId

_MOST = 64  # slices of one axis: the first ones

_LEAST = 16  # numbers in a slice, and

BUILDS_OF_DEPENDENCE = 3  # builds: of fewer, chance decides


def compare_dependence(name: str, a: np.ndarray, b: np.ndarray) -> Iterator[Difference]:
    """Yield the comparison of the mean squared cosine of slices, for each axis that has several.

    `a` and `b` have all builds of each side: [rows, …, builds]. For independent numbers with mean 0
    the mean is 1 over the size of a slice, whatever their distribution.
    """
    if a.ndim < 3 or _has_heavy_tails(a) or _has_heavy_tails(b):
        return
    for axis, size in enumerate(a.shape[:-1]):
        if size < 2 or a[..., 0].size < _LEAST * size:
            continue
        of_port = _cosines(a, axis)
        of_reference = _cosines(b, axis)
        if min(of_port.size, of_reference.size) < BUILDS_OF_DEPENDENCE:
            continue
        x = float(of_port.mean())
        y = float(of_reference.mean())
        count = min(size, _MOST)
        pairs = count * (count - 1) / 2
        error = math.hypot(_error(of_port, pairs), _error(of_reference, pairs))
        largest = max(x, y)
        if largest == 0:
            continue
        tolerance = max(MOST_STANDARD_ERRORS * error / largest, LEAST_DEPENDENCE)
        apart = abs(x - y)
        array = ArrayId(name, moment=f"squared cosine along axis {axis}")
        yield Difference(
            array,
            apart,
            apart / largest,
            math.nan,
            x,
            y,
            (),
            0.0,
            tolerance,
            reasons.STANDARD_ERRORS,
        )


def _has_heavy_tails(array: np.ndarray) -> bool:
    values = array.ravel()
    squares = np.square(values - values.mean())
    mean = float(squares.mean())
    if mean == 0:
        return True
    kurtosis = float(np.square(squares).mean()) / mean**2
    return has_heavy_tails(values.size, kurtosis)


def _cosines(array: np.ndarray, axis: int) -> np.ndarray:
    """Return the mean squared cosine of two slices along an axis, of each build."""
    slices = np.moveaxis(array, axis, 0)[:_MOST]
    means = []
    for build in np.moveaxis(slices, -1, 0):
        rows = build.reshape(len(build), -1)
        products = np.square(rows @ rows.T)
        sizes = np.square(rows).sum(1)
        wanted = ~np.eye(len(rows), dtype=bool)
        possible = float(np.outer(sizes, sizes)[wanted].sum())
        if possible:
            means.append(float(products[wanted].sum()) / possible)
    return np.array(means)


def _error(means: np.ndarray, pairs: float) -> float:
    """Return the standard error of a mean over builds, at least that of independent pairs."""
    count = means.size
    measured = float(means.std(ddof=1)) / math.sqrt(count)
    by_chance = float(means.mean()) * math.sqrt(2 / (pairs * count))
    return max(measured, by_chance)
