"""The initialisation stage: the distributions that both nets draw their parameters from."""

import math
from collections.abc import Mapping

import numpy as np

from resnet_fn.parity.compare import DIFFERS, Difference, Stage

_SIGMAS = 6.0  # of sampling error; with 500 comparisons a false alarm once in a million runs
_FEW = 8  # with fewer elements only a constant is told from a draw
_MANY = 1000  # elements from which a fourth moment tells a uniform from a normal distribution


def initialisation_stage(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> Stage:
    """Compare mean, standard deviation and kurtosis of every pair of parameters within sampling error.

    Args:
        ours, theirs: parameters as each net drew them, under the MindSpore net's names.
    """
    stage = Stage("initialisation")
    for name, b in theirs.items():
        found = _moments(name, np.asarray(ours[name], np.float64).ravel(), np.asarray(b, np.float64).ravel())
        stage.differences += found
        if any(item.verdict == DIFFERS for item in found):
            stage.hints.append(f"{name}: {_words(ours[name])} here, {_words(b)} in the reference")
    return stage


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
