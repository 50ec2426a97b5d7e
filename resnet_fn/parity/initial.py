"""Initial values by several builds: what repeats in each is compared as it is, what is drawn by its distribution."""

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from resnet_fn.parity.layers.difference import DIFFERS, difference
from resnet_fn.parity.stages import INITIALISATION, Stage, initialisation_stage
from resnet_fn.parity.trace import Arrays

_BUILDS = 20
_NUMBERS = 2**22  # of all builds together; a larger net is built twice
_BLOCKS = (12, 4, 3, 2)  # rows are also compared by block: an LSTM's gates, an attention's projections
_CHANCE = 1e-5  # share of an array's numbers that two draws may have in common
_ORTHOGONAL, _LARGE = 1e-4, 512  # the largest cosine between two rows; more rows are not compared


def several_builds(build: Callable[[], Any], state: Callable[[Any], Arrays], seeds: Mapping[Any, str]) -> list[Arrays]:
    """The parameters and statistics of several nets, each from another seed.

    `seeds` are the framework's modules and the name of the function in each that seeds it: inside a build they do
    nothing, as those of Python and NumPy, or all builds would be alike.
    """
    functions = {**seeds, random: "seed", np.random: "seed"}
    builds: list[Arrays] = []
    while len(builds) < 2 or len(builds) < min(
        _BUILDS, _NUMBERS // max(1, sum(one.size for one in builds[0].values()))
    ):
        with _seeded(len(builds) + 1, functions):
            builds.append(state(build()))
    return builds


@contextlib.contextmanager
def _seeded(seed: int, functions: Mapping[Any, str]) -> Iterator[None]:
    """Inside, the functions that seed do nothing; each has been called before."""
    before = {module: getattr(module, name) for module, name in functions.items()}
    for function in before.values():
        function(seed)
    try:
        for module, name in functions.items():
            setattr(module, name, lambda *_, **__: None)
        yield
    finally:
        for module, name in functions.items():
            setattr(module, name, before[module])


def builds_stage(ours: Sequence[Arrays], theirs: Sequence[Arrays], seams: Mapping[str, Sequence[int]]) -> Stage:
    """Compare the initial parameters of several builds, `theirs` and `seams` by our names.

    What repeats on both sides may differ by a unit in the last place of its largest number. Of the rest moments of all
    builds are compared, also by block of rows, and whether rows of the first build are orthogonal.
    """
    stage = Stage(INITIALISATION)
    pooled: tuple[Arrays, Arrays] = ({}, {})
    for name in theirs[0]:
        sides = [np.stack([build[name] for build in side], -1).astype(np.float64) for side in (ours, theirs)]
        fixed = [(side == side[..., :1]).all(-1) for side in sides]
        both = fixed[0] & fixed[1]
        if both.mean() > _CHANCE:
            x, y = (np.where(both, side[..., 0], 0.0) for side in sides)
            unit = 2.0**-23 * float(np.abs(y).max(initial=0.0))
            stage.differences.append(difference(f"{name} in each build", np.where(np.abs(x - y) <= unit, y, x), y))
            if stage.differences[-1].verdict == DIFFERS:
                stage.hints.append(f"{name}: in each build {stage.differences[-1].values()}")
        if both.all():
            continue
        if fixed[0].all() or fixed[1].all():  # one draw that repeats is not many
            sides = [side[..., :1] for side in sides]
        for title, rows in _blocks(name, both.shape):
            parts = [side[rows] for side in sides]
            for side, part in zip(pooled, parts, strict=True):
                side[title] = part
            stage.differences.append(difference(f"{title}: orthogonal", *map(_is_orthogonal, parts)))
            if stage.differences[-1].verdict == DIFFERS:
                where = "here and not in the reference" if stage.differences[-1].ours else "in the reference only"
                stage.hints.append(f"{title}: its rows are orthogonal {where}")
    moments = initialisation_stage(*pooled, seams)
    stage.differences += moments.differences
    stage.hints += moments.hints
    return stage


def _blocks(name: str, shape: tuple[int, ...]) -> Iterator[tuple[str, slice]]:
    """The whole array, then its blocks of rows."""
    yield name, slice(None)
    count = next((count for count in _BLOCKS if shape and shape[0] > count and shape[0] % count == 0), 0)
    size = shape[0] // count if count else 0
    for start in range(0, count * size, size or 1):
        yield f"{name} rows {start}:{start + size}", slice(start, start + size)


def _is_orthogonal(array: np.ndarray) -> bool:
    """Whether the rows of the first build [rows, …, builds] are orthogonal, or its columns if they are fewer."""
    if array.ndim < 3:
        return False
    matrix = array[..., 0].reshape(len(array), -1)
    matrix = matrix if len(matrix) <= matrix.shape[1] else matrix.T
    sizes = np.linalg.norm(matrix, axis=1, keepdims=True)
    if not 2 <= len(matrix) <= _LARGE or not sizes.all():
        return False
    cosines = (matrix / sizes) @ (matrix / sizes).T
    return bool(np.abs(cosines - np.eye(len(matrix))).max() < _ORTHOGONAL)
