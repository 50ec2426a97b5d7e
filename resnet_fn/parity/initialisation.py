"""The initialisation stage: the distributions that both nets draw their parameters from."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from resnet_fn.parity.compare import DIFFERS, Difference, Stage

_SIGMAS = 6.0  # of sampling error; with 500 comparisons a false alarm once in a million runs
_FEW = 8  # with fewer elements only a constant is told from a draw
_MANY = 1000  # elements from which a fourth moment tells a uniform from a normal distribution


def initialisation_stage(
    ours: Mapping[str, np.ndarray],
    theirs: Mapping[str, np.ndarray],
    seams: Mapping[str, Sequence[int]] | None = None,
) -> Stage:
    """Compare mean, standard deviation and kurtosis of every pair of parameters within sampling error.

    Rows that are constant in one of the two, as the padding row of an embedding is, are compared for themselves.

    Args:
        ours, theirs: parameters as each net drew them, under the MindSpore net's names.
        seams: rows at which a further part of the reference begins (`NameMap.seams`); each is compared by itself.
    """
    stage = Stage("initialisation")
    for name, b in theirs.items():
        ends = (seams or {}).get(name, ())
        pairs = [(np.asarray(ours[name], np.float64), np.asarray(b, np.float64), name)]
        if ends:
            parts = zip(*(np.split(array, ends) for array in pairs[0][:2]), strict=True)
            pairs = [(*part, f"{name} part {index + 1} of {len(ends) + 1}") for index, part in enumerate(parts)]
        for one, other, title in [piece for pair in pairs for piece in _constant_rows(*pair)]:
            found = _moments(title, one.ravel(), other.ravel())
            stage.differences += found
            if any(item.verdict == DIFFERS for item in found):
                stage.hints.append(f"{title}: {_words(one)} here, {_words(other)} in the reference")
    return stage


def _constant_rows(a: np.ndarray, b: np.ndarray, title: str) -> list[tuple[np.ndarray, np.ndarray, str]]:
    """Split off the rows that are constant in one array that is not constant itself."""
    if a.ndim < 2 or a[0].size < 2 or not (a.std() and b.std()):
        return [(a, b, title)]
    constant = np.array([row.std() == 0 for row in a]) | np.array([row.std() == 0 for row in b])
    if not constant.any() or constant.all():
        return [(a, b, title)]
    rows = [(a[index], b[index], f"{title} row {index}") for index in np.flatnonzero(constant)]
    return [*rows, (a[~constant], b[~constant], title)]


def _words(values: np.ndarray) -> str:
    values = np.asarray(values, np.float64)
    if values.std() == 0:
        return f"all {values.flat[0]:.6g}"
    return f"drawn in {values.min():.3g}..{values.max():.3g} with standard deviation {values.std():.3g}"


def _moments(name: str, a: np.ndarray, b: np.ndarray) -> list[Difference]:
    count, spread_a, spread_b = len(b), float(a.std()), float(b.std())
    if spread_a == 0 or spread_b == 0:
        constant = [_difference(f"{name} mean", float(a.mean()), float(b.mean()), 1.0, 1e-6)]
        return [*constant, _difference(f"{name} std", spread_a, spread_b, spread_b or 1.0, 0.0)]
    if count < _FEW:
        return []
    error = math.sqrt(2 / count)  # of a difference of two means, in standard deviations
    found = [
        _difference(f"{name} mean", float(a.mean()), float(b.mean()), max(spread_a, spread_b), _SIGMAS * error),
        _difference(f"{name} std", spread_a, spread_b, max(spread_a, spread_b), min(_SIGMAS * error / 2**0.5, 0.9)),
    ]
    if count >= _MANY:
        kurtosis_a, kurtosis_b = _kurtosis(a), _kurtosis(b)
        found.append(_difference(f"{name} kurtosis", kurtosis_a, kurtosis_b, 1.0, _SIGMAS * math.sqrt(48 / count)))
    return found


def _kurtosis(values: np.ndarray) -> float:
    squares = np.square(values - values.mean())
    return float(np.square(squares).mean() / squares.mean() ** 2)


def _difference(name: str, ours: float, theirs: float, scale: float, tolerance: float) -> Difference:
    apart = abs(ours - theirs)
    return Difference(name, apart, apart / scale, math.nan, ours, theirs, (), 0.0, tolerance)
