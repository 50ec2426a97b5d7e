"""The difference between two arrays, and its verdict.

A verdict needs to know what float32 can hold. Beside every pair of arrays stands the same array computed by the
reference in float64: where the reference's own float32 result is as far from it as the MindSpore net's, the difference
is rounding, not a fault.
"""

import dataclasses
import math
from typing import Any

import numpy as np

OK, ROUNDING, DIFFERS = "ok", "rounding", "DIFFERS"

# Two float32 implementations that add in different orders are about equally far from float64 (docs/migrating.md).
ROUNDING_FACTOR = 4.0


@dataclasses.dataclass(frozen=True)
class Difference:
    """How one array differs from the reference's.

    Attributes:
        name: of the parameter, layer or update.
        max_abs: the largest |a − b|.
        relative: ‖a − b‖ / ‖b‖ (‖a − b‖ where b is zero).
        cosine: of the angle between a and b; 1 where both are zero.
        ours, theirs: the values of a (MindSpore's) and b (the reference's) where |a − b| is largest.
        place: the index of that place.
        rounding: relative distance of the reference's float32 array from its float64 one, 0 if there is none; at
            least what the stage says float32 costs there (`difference`).
        tolerance: the relative error that passes.
    """

    name: str
    max_abs: float
    relative: float
    cosine: float
    ours: float
    theirs: float
    place: tuple[int, ...]
    rounding: float
    tolerance: float

    @property
    def verdict(self) -> str:
        """ "ok", "rounding" (above the tolerance, but no further than float32 itself), or "DIFFERS"."""
        if self.relative <= self.tolerance:
            return OK
        return ROUNDING if self.relative <= ROUNDING_FACTOR * self.rounding else DIFFERS

    @property
    def excess(self) -> float:
        """How many times what is allowed: above 1 the verdict is not "ok"."""
        if math.isnan(self.relative):
            return math.inf
        allowed = max(self.tolerance, ROUNDING_FACTOR * self.rounding if self.verdict == ROUNDING else 0.0)
        return self.relative / allowed if allowed else (math.inf if self.relative else 0.0)

    def values(self) -> str:
        """Both values where they differ most: "0.12 here, 0.13 in the reference at [0, 3]"."""
        place = f" at {list(self.place)}" if self.place else ""
        return f"{self.ours:.9g} here, {self.theirs:.9g} in the reference{place}"


def relative_error(a: Any, b: Any) -> float:
    """‖a − b‖ / ‖b‖ in float64; ‖a − b‖ where b is zero. NaN or infinity on one side alone gives infinity."""
    a, b = (np.asarray(array, np.float64).ravel() for array in (a, b))
    if np.array_equal(a, b, equal_nan=True):
        return 0.0
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return math.inf
    norm = float(np.linalg.norm(b))
    return float(np.linalg.norm(a - b)) / (norm or 1.0)


def difference(
    name: str, ours: Any, theirs: Any, exact: Any = None, tolerance: float = 0.0, rounding: float = 0.0
) -> Difference:
    """Compare an array with the reference's.

    Args:
        name: what to call it.
        ours, theirs: arrays of one shape, any float or integer type.
        exact: the reference's array computed in float64, if there is one.
        tolerance: the relative error that passes.
        rounding: the least to assume of rounding; a scalar may come close to its float64 value by luck.

    Raises:
        ValueError: the shapes differ.
    """
    a, b = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if a.shape != b.shape:
        raise ValueError(f"{name}: shape {a.shape} here, {b.shape} in the reference; make them equal")
    apart = np.abs(a - b)
    if not np.isfinite(apart).all():
        apart = np.where(np.isnan(apart) & ~(np.isnan(a) & np.isnan(b)), np.inf, np.nan_to_num(apart, posinf=np.inf))
    place = np.unravel_index(int(apart.argmax()), a.shape) if a.size else ()
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return Difference(
        name=name,
        max_abs=float(apart.max(initial=0.0)),
        relative=relative_error(a, b),
        cosine=float(np.vdot(a, b)) / norms if norms else float(np.array_equal(a, b)),
        ours=float(a[place]) if a.size else 0.0,
        theirs=float(b[place]) if a.size else 0.0,
        place=tuple(int(index) for index in place),
        rounding=rounding if exact is None else max(rounding, relative_error(b, exact)),
        tolerance=tolerance,
    )
