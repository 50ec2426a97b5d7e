"""What an array is like in a few numbers, how two sets of arrays differ, and tables of both."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from resnet_fn.config.hints import few
from resnet_fn.parity.layers.difference import Difference, difference

_NAMED = 10  # names of one kind; the JSON file has them all


@dataclasses.dataclass(frozen=True)
class ArrayStatistics:
    """An array in a few numbers. Computed in float64 over its finite values; NaN where it has none.

    Attributes:
        name: of the parameter or layer.
        std: the population's, divided by n.
        norm: Euclidean.
        zeros: the fraction of 1 that is exactly 0.
        not_finite: how many values are NaN or infinite.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    mean: float
    std: float
    min: float
    max: float
    norm: float
    zeros: float
    not_finite: int

    @property
    def count(self) -> int:
        """How many values the array has."""
        return int(np.prod(self.shape))


def array_statistics(name: str, array: np.ndarray) -> ArrayStatistics:
    """The statistics of an array of any shape and number type."""
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


def statistics_table(
    rows: Sequence[ArrayStatistics], title: str, zeros: bool = False, dtype: bool = False
) -> list[str]:
    """Lines: a head, then one line for each array, under the title of their names; whether to show zeros and dtype."""
    wide = max([len(title), *(len(row.name) for row in rows)])
    shapes = ["x".join(map(str, row.shape)) or "scalar" for row in rows]
    long = max([len("shape"), *map(len, shapes)])
    head = f"{title:{wide}}  {'shape':>{long}}" + (f"  {'dtype':8}" if dtype else "")
    lines = [head + "".join(f"  {name:>10}" for name in ("mean", "std", "min", "max", "norm", *["zeros"] * zeros))]
    for row, shape in zip(rows, shapes, strict=True):
        line = f"{row.name:{wide}}  {shape:>{long}}" + (f"  {row.dtype:8}" if dtype else "")
        line += "".join(f"  {value:10.3e}" for value in (row.mean, row.std, row.min, row.max, row.norm))
        line += f"  {row.zeros:10.1%}" if zeros else ""
        lines.append(line + (f"  {row.not_finite} NOT FINITE" if row.not_finite else ""))
    return lines


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two sets of arrays.

    Attributes:
        differences: of the names that both have in one shape and not in the same values; largest relative first.
        same: how many names have equal values in both.
        missing, unexpected: names that only the second has, that only the first has.
        shapes: "name (3,) here, (4,) there" for each name with two shapes.
    """

    differences: list[Difference]
    same: int
    missing: list[str]
    unexpected: list[str]
    shapes: list[str]


def compare_arrays(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> Comparison:
    """Compare two sets of arrays by name; a ValueError if not a tenth of the smaller is in both in one shape."""
    both = [name for name in ours if name in theirs]
    alike = dict.fromkeys(name for name in both if ours[name].shape == theirs[name].shape)
    if 10 * len(alike) < min(len(ours), len(theirs)):
        raise ValueError(
            f"OTHER: another net than CHECKPOINT: of {len(theirs)} and {len(ours)} arrays only {len(alike)} with the "
            "same name and shape in both; give two checkpoints of one net"
        )
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
    kinds = (
        ("only in the other", compared.missing),
        ("only here", compared.unexpected),
        ("of another shape", compared.shapes),
    )
    lines = [f"{kind} ({len(names)}): {few(names, _NAMED)}" for kind, names in kinds if names]
    if compared.differences:
        wide = max(9, *(len(item.name) for item in compared.differences))
        lines.append(
            f"{'parameter':{wide}}  {'relative':>10}  {'max abs':>10}  {'cosine':>12}  {'here':>12}  {'there':>12}  at"
        )
        lines += [
            f"{item.name:{wide}}  {item.relative:10.3e}  {item.max_abs:10.3e}  {item.cosine:12.9f}  "
            f"{item.ours:12.5e}  {item.theirs:12.5e}  {list(item.place)}"
            for item in compared.differences
        ]
    total = compared.same + len(compared.differences)
    return [*lines, f"{compared.same} of {total} parameters that both have are equal"]
