"""These functions compute statistics of arrays and compare two sets of arrays."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from resnet_fn.config.wording import first_few
from resnet_fn.parity.trace.difference import Difference, difference
from resnet_fn.runtime.console import aligned

_NAMED = 10  # most printed names of one kind; the JSON file has all names


@dataclasses.dataclass(frozen=True)
class ArrayStatistics:
    """The statistics of an array.

    Mean, std, min, max and norm ignore NaN and infinity (NaN if no value is finite).
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    mean: float
    std: float  # standard deviation, with divisor n
    min: float
    max: float
    norm: float
    zeros: float  # share of values that are exactly 0, in 0..1
    not_finite: int  # number of values that are NaN or infinite


def array_statistics(name: str, array: np.ndarray) -> ArrayStatistics:
    """Compute the statistics of an array in float64."""
    values = np.asarray(array, np.float64).ravel()
    finite = values[np.isfinite(values)]
    some = finite if finite.size else np.full(1, np.nan)
    return ArrayStatistics(
        name=name,
        shape=tuple(array.shape),
        dtype=str(array.dtype),
        mean=float(some.mean()),
        std=float(some.std()),
        min=float(some.min()),
        max=float(some.max()),
        norm=float(np.linalg.norm(some)),
        zeros=float((values == 0).mean()) if values.size else 0.0,
        not_finite=values.size - finite.size,
    )


def statistics_table(rows: Sequence[ArrayStatistics]) -> list[str]:
    """Return the lines of a table with a row for each array."""
    cells = [["parameter", "shape", "dtype", "mean", "std", "min", "max", "norm"]]
    for row in rows:
        shape = "x".join(map(str, row.shape)) or "scalar"
        numbers = [row.mean, row.std, row.min, row.max, row.norm]
        cells.append([row.name, shape, row.dtype, *(f"{number:.3e}" for number in numbers)])
    head, *lines = aligned(cells)
    return [head] + [
        line + f"  {row.not_finite} NOT FINITE" * bool(row.not_finite)
        for line, row in zip(lines, rows, strict=True)
    ]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The differences between two sets of arrays."""

    # of arrays with the same name and shape, the largest relative difference first
    differences: list[Difference]
    same: int  # number of arrays that are equal in both sets
    missing: list[str]  # names that only the second set has
    unexpected: list[str]  # names that only the first set has
    shapes: list[str]  # "name (3,) here, (4,) there" for each name whose shapes differ


def compare_arrays(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> Comparison:
    """Compare two sets of arrays by name.

    At least 10 % of the smaller set must match in name and shape.
    """
    shapes = []
    differences = []
    same = 0
    for name, array in ours.items():
        if name not in theirs:
            continue
        other = theirs[name]
        if array.shape != other.shape:
            shapes.append(f"{name} {array.shape} here, {other.shape} there")
        elif np.array_equal(array, other, equal_nan=True):
            same += 1
        else:
            differences.append(difference(name, array, other))
    alike = same + len(differences)
    if 10 * alike < min(len(ours), len(theirs)):
        raise ValueError(
            f"OTHER: only {alike} of {len(theirs)} arrays match CHECKPOINT's {len(ours)} "
            "arrays in name and shape; give two checkpoints of one net"
        )
    return Comparison(
        differences=sorted(differences, key=lambda item: -item.relative),
        same=same,
        missing=[name for name in theirs if name not in ours],
        unexpected=[name for name in ours if name not in theirs],
        shapes=shapes,
    )


def comparison_table(compared: Comparison) -> list[str]:
    """Return lines of text with the names that only one set has, the differences, and the number of
    equal arrays.
    """
    lines = [
        f"{kind} ({len(names)}): {first_few(names, _NAMED)}"
        for kind, names in (
            ("only in OTHER", compared.missing),
            ("not in OTHER", compared.unexpected),
            ("other shapes", compared.shapes),
        )
        if names
    ]
    if compared.differences:
        cells = [["parameter", "relative", "max abs", "cosine", "here", "there", "at"]]
        for item in compared.differences:
            sizes = [f"{item.relative:.3e}", f"{item.max_abs:.3e}", f"{item.cosine:.9f}"]
            values = [f"{item.port:.5e}", f"{item.reference:.5e}", f"{list(item.place)}"]
            cells.append([item.name, *sizes, *values])
        lines += aligned(cells)
    total = compared.same + len(compared.differences)
    return [*lines, f"{compared.same} of {total} common parameters are equal"]
