"""Compare the initial values of both nets over several builds with different seeds."""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from resnet_fn.config.wording import first_few
from resnet_fn.parity.compare.allowed import NO_TOLERANCE, within
from resnet_fn.parity.compare.clones import compare_clones
from resnet_fn.parity.compare.dependence import compare_dependence
from resnet_fn.parity.compare.draws import (
    CHANCE,
    CONSTANTS_TOLERANCE,
    MOST_BY_CHANCE,
    ORTHOGONAL,
    deviation_of_draws,
    distribution_of_draws,
    has_heavy_tails,
    kurtosis_of_draws,
    mean_of_draws,
    moments_of_heavy_tails,
    without_tails,
)
from resnet_fn.parity.compare.rule import TraceRule
from resnet_fn.parity.compare.sides import Sides
from resnet_fn.parity.compare.stage import Absent, Stage, not_in_task
from resnet_fn.parity.pair.name_map import NameMap
from resnet_fn.parity.trace import reasons
from resnet_fn.parity.trace.difference import DIFFERS, Difference
from resnet_fn.parity.trace.stages import INITIALISATION, ArrayId, StageId
from resnet_fn.parity.trace.tree import Arrays

# an array's rows are also compared in 2, 3 and 4 blocks, such as the gates of an LSTM
_BLOCKS = (2, 3, 4)

_BLOCK = 16  # a block with fewer numbers in all builds is not compared

_FEW = 8  # with fewer elements only constants are compared

# from so many elements on, the kurtosis distinguishes a uniform from a normal distribution
_MANY = 1000

_SORTED = 1 << 20  # of more numbers, only a part is sorted

_LARGE = 512  # the most rows that are compared for orthogonality


@dataclasses.dataclass(frozen=True)
class Initialisation(TraceRule):
    """Compares the initial values of trained and random arrays."""

    id: StageId = INITIALISATION

    def stage(self, sides: Sides) -> Stage:
        """Return the comparison of all builds or, without several builds, of both nets."""
        if not sides.initialisation:
            return not_in_task(self.id, "not asked for")
        port, names, builds = sides.port, sides.names, sides.builds
        initial = names.rename(sides.reference.initial)
        gradients, drawn = port.run.gradients, sides.random_arrays
        compared = [name for name in initial if name in gradients or name in drawn]
        if len(builds) < 2:
            builds = [(port.initial, initial)]
        of_port = []
        of_reference = []
        for a, b in builds:
            of_port.append({name: a[name] for name in compared})
            of_reference.append({name: b[name] for name in compared})
        seams = names.seams(sides.reference.initial)
        stage = initial_stage(of_port, of_reference, seams)
        shared = [*port.tied, *_of_one_source(compared, names)]
        differences, hints = compare_clones(of_port[0], of_reference[0], shared)
        return dataclasses.replace(
            stage,
            differences=[*stage.differences, *differences],
            hints=[*stage.hints, *hints],
        )


def _of_one_source(arrays: Iterable[str], names: NameMap) -> list[list[str]]:
    """Return groups of the port's arrays that are built from the same arrays of the reference."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in arrays:
        groups.setdefault(names.sources(name), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def initial_stage(
    port: Sequence[Arrays],
    reference: Sequence[Arrays],
    seams: Mapping[str, Sequence[int]] | None = None,
) -> Stage:
    """Compare the initial parameters of both nets. `port` and `reference` have a dict for each
    build, with the port's names.

    Elements that are equal in all builds of each side are compared by value, other elements by
    their distribution. If an array joins several parts, `seams` maps its name to the first row of
    each part after the first part.
    """
    differences: list[Difference] = []
    hints: list[str] = []
    fixed: dict[str, list[str]] = {"port": [], "reference": []}  # what one side alone fixes
    for name in reference[0]:
        a = _stacked(name, port)
        b = _stacked(name, reference)
        cuts = seams.get(name, ()) if seams else ()
        items, lines = _compare_builds(name, a, b, cuts)
        differences += items
        hints += lines
        side = _side_that_repeats(a, b)
        if side and all(item.verdict != DIFFERS for item in items):
            fixed[side].append(name)
    return Stage(
        INITIALISATION,
        differences,
        hints=hints,
        overwritten=True,
        not_exercised=[
            f"initial values that are the same in each build of the {side} alone: {first_few(names)}"
            for side, names in fixed.items()
            if names
        ],
        absent=Absent.NOT_IN_TASK,  # nothing is trained or random
    )


def _side_that_repeats(a: np.ndarray, b: np.ndarray) -> str:
    """Return the side all of whose builds have the same numbers, or "" if none or both have."""
    fixed_a, fixed_b = _repeated(a).all(), _repeated(b).all()
    if fixed_a == fixed_b:
        return ""
    return "port" if fixed_a else "reference"


def _repeated(builds: np.ndarray) -> np.ndarray:
    """Return which numbers of an array [rows, …, builds] are the same in each of several builds."""
    repeated: np.ndarray = (builds == builds[..., :1]).all(-1)
    return repeated & (builds.shape[-1] > 1)


def _stacked(name: str, builds: Sequence[Arrays]) -> np.ndarray:
    """Return an array of all builds: [rows, …, builds], float64."""
    arrays = [build[name] for build in builds]
    return np.stack(arrays, -1).astype(np.float64)


class _Rows(NamedTuple):
    """Some rows of an array in all builds of both sides: [rows, …, builds]."""

    id: ArrayId
    port: np.ndarray
    reference: np.ndarray


def _compare_builds(
    name: str, a: np.ndarray, b: np.ndarray, cuts: Sequence[int]
) -> tuple[list[Difference], list[str]]:
    """Compare one array. `a` and `b` have all builds of each side: [rows, …, builds]."""
    differences: list[Difference] = []
    hints: list[str] = []
    several = a.shape[-1] > 1
    fixed_a, fixed_b = _repeated(a), _repeated(b)
    both = fixed_a & fixed_b
    if both.mean() > CHANCE:
        item = _compare_constants(name, both, a[..., 0], b[..., 0])
        differences.append(item)
        if item.verdict == DIFFERS:
            hints.append(f"{name}: not random: {item.values()}")
    if both.all():
        return differences, hints
    if fixed_a.all() or fixed_b.all():  # equal builds are one draw, not several
        a, b = a[..., :1], b[..., :1]
    begin = len(differences)
    for block, rows in _blocks(name, both.shape, cuts):
        part = _Rows(block, a[rows], b[rows])
        if block.rows and part.port.size < _BLOCK:
            continue
        items, lines = _compare_rows(part, several)
        differences += items
        hints += lines
        differ = any(item.verdict == DIFFERS for item in differences[begin:])
        if not block.rows and not cuts and differ:
            break  # its blocks differ for the same reason
    if a.shape[-1] > 1 and not any(item.verdict == DIFFERS for item in differences[begin:]):
        for item in compare_dependence(name, a, b):
            differences.append(item)
            if item.verdict == DIFFERS:
                numbers = f"{item.port:.3g} in the port, {item.reference:.3g} in the reference"
                hints.append(
                    f"{name}: its numbers depend on each other in one net, or in another way "
                    f"(mean {item.id.moment}: {numbers})"
                )
    return differences, hints


def _compare_constants(
    name: str, where: np.ndarray, port: np.ndarray, reference: np.ndarray
) -> Difference:
    """Compare the elements that are equal in all builds, up to a unit in the last place."""
    x = np.where(where, port, 0.0)
    y = np.where(where, reference, 0.0)
    largest = float(np.abs(y).max(initial=0.0))
    unit = 2.0**-23 * largest
    same = np.where(np.abs(x - y) <= unit, y, x)
    return within(NO_TOLERANCE).compare(ArrayId(name, moment="each build"), same, y)


def _compare_rows(part: _Rows, several: bool) -> tuple[list[Difference], list[str]]:
    """Compare whether rows are orthogonal, and the moments of their numbers."""
    differences: list[Difference] = []
    hints: list[str] = []
    if several:
        array = dataclasses.replace(part.id, moment="orthogonal")
        orthogonal = _is_orthogonal(part.port), _is_orthogonal(part.reference)
        item = within(NO_TOLERANCE).compare(array, *orthogonal)
        differences.append(item)
        if item.verdict == DIFFERS:
            where = "in the port and not in the reference" if item.port else "in the reference only"
            hints.append(f"{part.id.name}{part.id.part}: its rows are orthogonal {where}")
    for rows in _constant_rows(part):
        moments = _moments(rows)
        differences += moments
        if any(item.verdict == DIFFERS for item in moments):
            numbers = f"{_words(rows.port)} in the port, {_words(rows.reference)} in the reference"
            hints.append(f"{rows.id.name}{rows.id.part}: {numbers}")
    return differences, hints


def _blocks(
    name: str, shape: tuple[int, ...], seams: Sequence[int]
) -> Iterator[tuple[ArrayId, slice]]:
    yield ArrayId(name), slice(None)
    rows = shape[0] if shape else 0
    cuts: list[Sequence[int]] = []
    if seams:
        cuts.append([0, *seams, rows])
    else:
        counts = [count for count in _BLOCKS if rows > count and rows % count == 0]
        cuts += [range(0, rows + 1, rows // count) for count in counts]
    for ends in cuts:
        for start, end in itertools.pairwise(ends):
            yield ArrayId(name, rows=(start, end)), slice(start, end)


def _is_orthogonal(array: np.ndarray) -> bool:
    """Return whether all rows, or columns if fewer, are orthogonal in each build.

    Shape: [rows, …, builds].
    """
    if array.ndim < 3:
        return False
    # of one build by chance, if most numbers are 0
    return all(_has_orthogonal_rows(build) for build in np.moveaxis(array, -1, 0))


def _has_orthogonal_rows(array: np.ndarray) -> bool:
    matrix = array.reshape(len(array), -1)
    if len(matrix) > matrix.shape[1]:
        matrix = matrix.T
    count = len(matrix)
    sizes = np.linalg.norm(matrix, axis=1, keepdims=True)
    if not 2 <= count <= _LARGE or not sizes.all():
        return False
    units = matrix / sizes
    cosines = units @ units.T
    return bool(np.abs(cosines - np.eye(count)).max() < ORTHOGONAL)


def _constant_rows(part: _Rows) -> list[_Rows]:
    """Split off single rows that are constant on either side."""
    array, a, b = part
    if a.ndim < 2 or a[0].size < 2:
        return [part]
    if not np.ptp(a) or not np.ptp(b):
        return [part]
    constant = _are_constant(a) | _are_constant(b)
    constant &= ~_constant_by_chance(a, b)
    if not constant.any() or constant.all():
        return [part]
    rows = []
    for index in np.flatnonzero(constant):
        row = dataclasses.replace(array, row=int(index))
        rows.append(_Rows(row, a[index], b[index]))
    drawn = _Rows(array, a[~constant], b[~constant])
    return [*rows, drawn]


def _are_constant(rows: np.ndarray) -> np.ndarray:
    flat = rows.reshape(len(rows), -1)
    return np.ptp(flat, axis=1) == 0


def _constant_by_chance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return for each row whether it may be constant by chance, as where most numbers are 0."""
    by_chance = np.zeros(len(a), bool)
    constant_a = _are_constant(a)
    constant_b = _are_constant(b)
    rest_a = a[~constant_a]
    rest_b = b[~constant_b]
    others = np.append(rest_a, rest_b)
    if not others.size:
        return by_chance
    size = a[0].size
    for rows, constant in ((a, constant_a), (b, constant_b)):
        flat = rows.reshape(len(rows), -1)
        firsts = flat[:, 0]
        for value in np.unique(firsts[constant]):
            share = float((others == value).mean())
            if share**size > MOST_BY_CHANCE:
                by_chance |= constant & (firsts == value)
    return by_chance


def _words(values: np.ndarray) -> str:
    spread = values.std()
    if spread == 0:
        return f"all {values.flat[0]:.6g}"
    extent = f"{values.min():.3g}..{values.max():.3g}"
    return f"drawn in {extent} with standard deviation {spread:.3g}"


def _moments(part: _Rows) -> list[Difference]:
    """Compare constants by value, and random numbers by mean, standard deviation and kurtosis."""
    a = part.port.ravel()
    b = part.reference.ravel()
    count = len(b)
    spread_a = float(a.std())
    spread_b = float(b.std())
    mean_a = float(a.mean())
    mean_b = float(b.mean())
    largest = max(spread_a, spread_b)

    def compared(moment: str, x: float, y: float, scale: float, tolerance: float) -> Difference:
        array = dataclasses.replace(part.id, moment=moment)
        apart = abs(x - y)
        relative = apart / scale
        why = reasons.STANDARD_ERRORS if spread_a and spread_b else reasons.CONSTANTS
        return Difference(array, apart, relative, math.nan, x, y, (), 0.0, tolerance, why)

    if count == 1:
        is_constant = _is_round(a[0]) or _is_round(b[0])
        if not is_constant:
            return []  # a single number may be random
    if spread_a == 0 or spread_b == 0:
        scale = spread_b or 1.0
        return [
            compared("mean", mean_a, mean_b, 1.0, CONSTANTS_TOLERANCE),
            compared("std", spread_a, spread_b, scale, 0.0),
        ]
    if count < _FEW:
        return []
    moments = [compared("mean", mean_a, mean_b, largest, mean_of_draws(count))]
    heavy = [has_heavy_tails(count, _kurtosis(array)) for array in (a, b)]
    of_deviation = deviation_of_draws(count)
    of_kurtosis = kurtosis_of_draws(count)
    if any(heavy):
        # The shares of numbers below a limit do not depend on the tails.
        apart = _largest_distance(a, b)
        moments.append(compared("distribution", apart, 0.0, 1.0, distribution_of_draws(count)))
        a = without_tails(a)
        b = without_tails(b)
        spread_a = float(a.std())
        spread_b = float(b.std())
        if spread_a == 0 or spread_b == 0:
            return moments
        deviation, kurtosis = moments_of_heavy_tails(a, b)
        of_deviation = max(of_deviation, deviation)
        of_kurtosis = max(of_kurtosis, kurtosis)
    largest = max(spread_a, spread_b)
    moments.append(compared("std", spread_a, spread_b, largest, of_deviation))
    if count >= _MANY and not all(heavy):
        moments.append(compared("kurtosis", _kurtosis(a), _kurtosis(b), 1.0, of_kurtosis))
    return moments


def _largest_distance(a: np.ndarray, b: np.ndarray) -> float:
    """Return the largest difference of the shares of numbers up to a limit, over all limits."""
    sides = []
    for draw in (a, b):
        every = 1 + draw.size // _SORTED
        sides.append(np.sort(draw[::every]))
    limits = np.concatenate(sides)
    shares = []
    for draw in sides:
        below = np.searchsorted(draw, limits, "right")
        shares.append(below / draw.size)
    apart = np.abs(shares[0] - shares[1])
    return float(apart.max())


def _is_round(value: float) -> bool:
    return float(f"{value:.3g}") == float(np.float32(value))


def _kurtosis(values: np.ndarray) -> float:
    squares = np.square(values - values.mean())
    return float(np.square(squares).mean() / squares.mean() ** 2)
