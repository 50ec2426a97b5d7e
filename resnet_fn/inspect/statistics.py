"""What an array is like in a few numbers, how two sets of arrays differ, and tables of both."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from resnet_fn.config.hints import few
from resnet_fn.parity.layers.difference import Difference, difference
from resnet_fn.runtime.console import aligned

_NAMED = 10  # names of one kind; the JSON file has them all


@dataclasses.dataclass(frozen=True)
class ArrayStatistics:
    """An array in a few numbers. Computed in float64 over its finite values; NaN where it has none."""

    name: str  # of the parameter or layer
    shape: tuple[int, ...]
    dtype: str
    mean: float
    std: float  # the population's, divided by n
    min: float
    max: float
    norm: float
    zeros: float  # the fraction of 1 that is exactly 0
    not_finite: int  # how many values are NaN or infinite


def array_statistics(name: str, array: np.ndarray) -> ArrayStatistics:
    """The statistics of an array of any shape and number type."""
    values = np.asarray(array, np.float64).ravel()
    finite = values[np.isfinite(values)]
    some = finite if finite.size else np.full(1, np.nan)
    mean, std, least, most, size = map(float, (some.mean(), some.std(), some.min(), some.max(), np.linalg.norm(some)))
    zeros = float((values == 0).mean()) if values.size else 0.0
    rest, kind = values.size - finite.size, str(array.dtype)
    return ArrayStatistics(name, tuple(array.shape), kind, mean, std, least, most, size, zeros, rest)


def statistics_table(
    rows: Sequence[ArrayStatistics],
    title: str,
    zeros: bool = False,
    dtype: bool = False,
    relative: Mapping[str, float] | None = None,
) -> list[str]:
    """Lines: a head, then one line for each array, under the title of their names; which columns to show beside."""
    cells = [[title, "shape", *["dtype"] * dtype, "mean", "std", "min", "max", "norm"]]
    cells[0] += ["zeros"] * zeros + ["/ weights"] * (relative is not None)
    for row in rows:
        numbers = [row.mean, row.std, row.min, row.max, row.norm]
        cells.append([row.name, "x".join(map(str, row.shape)) or "scalar", *[row.dtype] * dtype])
        cells[-1] += [*(f"{number:.3e}" for number in numbers), *[f"{row.zeros:.1%}"] * zeros]
        cells[-1] += [] if relative is None else [f"{relative[row.name]:.3e}"]
    notes = ["", *(f"  {row.not_finite} NOT FINITE" if row.not_finite else "" for row in rows)]
    return [line + note for line, note in zip(aligned(cells), notes, strict=True)]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two sets of arrays."""

    differences: list[Difference]  # of names that both have in one shape with other values; largest relative first
    same: int  # how many names have equal values in both
    missing: list[str]  # names that only the second has
    unexpected: list[str]  # names that only the first has
    shapes: list[str]  # "name (3,) here, (4,) there" for each name with two shapes


def compare_arrays(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> Comparison:
    """Compare two sets of arrays by name; a ValueError if not a tenth of the smaller is in both in one shape."""
    both = [name for name in ours if name in theirs]
    alike = dict.fromkeys(name for name in both if ours[name].shape == theirs[name].shape)
    if 10 * len(alike) < min(len(ours), len(theirs)):
        few_alike = f"of {len(theirs)} and {len(ours)} arrays only {len(alike)} with the same name and shape in both"
        raise ValueError(f"OTHER: another net than CHECKPOINT: {few_alike}; give two checkpoints of one net")
    apart = [name for name in alike if not np.array_equal(ours[name], theirs[name], equal_nan=True)]
    differences = [difference(name, ours[name], theirs[name]) for name in apart]
    return Comparison(
        differences=sorted(differences, key=lambda item: -item.relative),
        same=len(alike) - len(apart),
        missing=[name for name in theirs if name not in ours],
        unexpected=[name for name in ours if name not in theirs],
        shapes=[f"{name} {ours[name].shape} here, {theirs[name].shape} there" for name in both if name not in alike],
    )


def comparison_table(compared: Comparison) -> list[str]:
    """Lines: what only one of them has, then the differences, then how many are equal."""
    kinds = {"only in the other": compared.missing, "only here": compared.unexpected, "other shapes": compared.shapes}
    lines = [f"{kind} ({len(names)}): {few(names, _NAMED)}" for kind, names in kinds.items() if names]
    if compared.differences:
        cells = [["parameter", "relative", "max abs", "cosine", "here", "there", "at"]]
        for item in compared.differences:
            sizes = [f"{item.relative:.3e}", f"{item.max_abs:.3e}", f"{item.cosine:.9f}"]
            values = [f"{item.ours:.5e}", f"{item.theirs:.5e}", f"{list(item.place)}"]
            cells.append([item.name, *sizes, *values])
        lines += aligned(cells)
    total = compared.same + len(compared.differences)
    return [*lines, f"{compared.same} of {total} parameters that both have are equal"]
