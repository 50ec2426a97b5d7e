"""Compare the initial values of both nets over several builds with different seeds."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.trace.difference import DIFFERS, Difference, difference
from resnet_fn.parity.trace.stages import INITIALISATION
from resnet_fn.parity.trace.tree import Arrays

# an array's rows are also compared in 2, 3 and 4 blocks, such as the gates of an LSTM
_BLOCKS = (2, 3, 4)

_BLOCK = 16  # a block with fewer numbers in all builds is not compared

_CHANCE = 1e-5  # fraction of an array's numbers that may be equal in two draws by chance

# how many standard errors pass; 500 comparisons fail by chance once in a million runs
_SIGMAS = 6.0

_FEW = 8  # with fewer elements only constants are compared

# from so many elements on, the kurtosis distinguishes a uniform from a normal distribution
_MANY = 1000

# the largest cosine of two orthogonal rows; the most rows that are compared
_ORTHOGONAL, _LARGE = 1e-4, 512


def initial_stage(
    ours: Sequence[Arrays],
    theirs: Sequence[Arrays],
    seams: Mapping[str, Sequence[int]] | None = None,
) -> Stage:
    """Compare the initial parameters of both nets. `ours` and `theirs` have a dict for each build,
    with our names.

    Elements that are equal in all builds of each side are compared by value, other elements by
    their distribution. If an array joins several parts, `seams` maps its name to the first row of
    each part after the first part.
    """
    stage, several = Stage(INITIALISATION), len(ours) > 1
    for name in theirs[0]:
        a, b = (
            np.stack([build[name] for build in side], -1).astype(np.float64)
            for side in (ours, theirs)
        )
        fixed = [(side == side[..., :1]).all(-1) & several for side in (a, b)]
        both = fixed[0] & fixed[1]
        if both.mean() > _CHANCE:
            x, y = (np.where(both, side[..., 0], 0.0) for side in (a, b))
            unit = 2.0**-23 * float(np.abs(y).max(initial=0.0))
            item = difference(f"{name} in each build", np.where(np.abs(x - y) <= unit, y, x), y)
            stage.differences.append(item)
            stage.hints += [f"{name}: not random: {item.values()}"] * (item.verdict == DIFFERS)
        if both.all():
            continue
        if fixed[0].all() or fixed[1].all():  # equal builds are one draw, not several
            a, b = a[..., :1], b[..., :1]
        begin, cuts = len(stage.differences), (seams or {}).get(name, ())
        for title, rows in _blocks(name, both.shape, cuts):
            if title != name and a[rows].size < _BLOCK:
                continue
            if several:
                item = difference(
                    f"{title}: orthogonal", _is_orthogonal(a[rows]), _is_orthogonal(b[rows])
                )
                where = "here and not in the reference" if item.ours else "in the reference only"
                stage.differences.append(item)
                stage.hints += [f"{title}: its rows are orthogonal {where}"] * (
                    item.verdict == DIFFERS
                )
            for one, other, part in _constant_rows(a[rows], b[rows], title):
                moments = _moments(part, one.ravel(), other.ravel())
                stage.differences += moments
                if any(item.verdict == DIFFERS for item in moments):
                    stage.hints.append(
                        f"{part}: {_words(one)} here, {_words(other)} in the reference"
                    )
            if (
                title == name
                and not cuts
                and any(item.verdict == DIFFERS for item in stage.differences[begin:])
            ):
                break  # its blocks differ for the same reason
    return stage


def _blocks(name: str, shape: tuple[int, ...], seams: Sequence[int]) -> Iterator[tuple[str, slice]]:
    yield name, slice(None)
    rows = shape[0] if shape else 0
    equal = [
        range(0, rows + 1, rows // count) for count in _BLOCKS if rows > count and rows % count == 0
    ]
    for ends in [[0, *seams, rows]] if seams else equal:
        for start, end in itertools.pairwise(ends):
            yield f"{name} rows {start}:{end}", slice(start, end)


def _is_orthogonal(array: np.ndarray) -> bool:
    """Return whether all rows, or columns if fewer, are orthogonal in the first build.

    Shape: [rows, …, builds].
    """
    if array.ndim < 3:
        return False
    matrix = array[..., 0].reshape(len(array), -1)
    matrix = matrix if len(matrix) <= matrix.shape[1] else matrix.T
    sizes = np.linalg.norm(matrix, axis=1, keepdims=True)
    if not 2 <= len(matrix) <= _LARGE or not sizes.all():
        return False
    cosines = (matrix / sizes) @ (matrix / sizes).T
    return bool(np.abs(cosines - np.eye(len(matrix))).max() < _ORTHOGONAL)


def _constant_rows(
    a: np.ndarray, b: np.ndarray, title: str
) -> list[tuple[np.ndarray, np.ndarray, str]]:
    """Split off single rows that are constant in `a` or `b`.

    Returns tuples (rows of `a`, rows of `b`, title).
    """
    if a.ndim < 2 or a[0].size < 2 or not (np.ptp(a) and np.ptp(b)):
        return [(a, b, title)]
    same = [np.ptp(array.reshape(len(array), -1), axis=1) == 0 for array in (a, b)]
    constant = same[0] | same[1]
    if not constant.any() or constant.all():
        return [(a, b, title)]
    rows = [(a[index], b[index], f"{title} row {index}") for index in np.flatnonzero(constant)]
    return [*rows, (a[~constant], b[~constant], title)]


def _words(values: np.ndarray) -> str:
    if values.std() == 0:
        return f"all {values.flat[0]:.6g}"
    return (
        f"drawn in {values.min():.3g}..{values.max():.3g} with standard deviation "
        f"{values.std():.3g}"
    )


def _moments(name: str, a: np.ndarray, b: np.ndarray) -> list[Difference]:
    count, spread_a, spread_b = len(b), float(a.std()), float(b.std())
    mean, std = ("mean", float(a.mean()), float(b.mean())), ("std", spread_a, spread_b)
    # name, ours, theirs, scale, tolerance
    moments: list[tuple[str, float, float, float, float]] = []
    if count == 1 and not any(
        float(f"{value:.3g}") == float(np.float32(value)) for value in (a[0], b[0])
    ):
        return []  # a single number may be random, unless it is a round one
    if spread_a == 0 or spread_b == 0:
        moments = [(*mean, 1.0, 1e-6), (*std, spread_b or 1.0, 0.0)]
    elif count >= _FEW:
        # the allowed difference of two means, in standard deviations
        error = _SIGMAS * math.sqrt(2 / count)
        largest = max(spread_a, spread_b)
        moments = [(*mean, largest, error), (*std, largest, min(error / 2**0.5, 0.9))]
        if count >= _MANY:
            moments.append(
                ("kurtosis", _kurtosis(a), _kurtosis(b), 1.0, _SIGMAS * math.sqrt(48 / count))
            )
    return [
        Difference(
            f"{name} {moment}", abs(x - y), abs(x - y) / scale, math.nan, x, y, (), 0.0, tolerance
        )
        for moment, x, y, scale, tolerance in moments
    ]


def _kurtosis(values: np.ndarray) -> float:
    squares = np.square(values - values.mean())
    return float(np.square(squares).mean() / squares.mean() ** 2)
