"""The difference between two arrays, and its verdict.

A verdict needs to know what float32 can hold. Beside every pair of arrays stands the same array computed by the
reference in float64: where the reference's own float32 result is as far from it as the MindSpore net's, the difference
is rounding, not a fault.
"""

import dataclasses
import math
from typing import Any

import numpy as np

OK, ROUNDING, UNDECIDED, DIFFERS = "ok", "rounding", "undecided", "DIFFERS"

# Two float32 implementations that add in different orders are about equally far from float64 (docs/migrating.md).
ROUNDING_FACTOR = 4.0
# A reference so uncertain that rounding would allow for more than this says nothing of a smaller difference.
CEILING = 0.25


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
        ceiling: what rounding may allow for; above it the verdict is "undecided".
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
    ceiling: float = CEILING

    @property
    def verdict(self) -> str:
        """ "ok", "rounding" (above the tolerance, but no further than float32 itself), "undecided", or "DIFFERS"."""
        if self.relative <= self.tolerance or (math.isnan(self.relative) and not self.tolerance):
            return OK
        allowed = ROUNDING_FACTOR * self.rounding
        if self.relative > allowed:
            return DIFFERS
        return ROUNDING if not math.isnan(self.relative) and allowed <= self.ceiling else UNDECIDED

    @property
    def doubt(self) -> str:
        """Why the verdict is "undecided"; empty where it is not."""
        if self.verdict != UNDECIDED:
            return ""
        if math.isnan(self.relative):
            return "no number is finite on either side"
        if math.isinf(self.rounding):
            return "the reference is infinite or NaN where its float64 is not"
        return f"the reference itself is {self.rounding:.2g} of its size away from its float64"

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


def _finite_places(a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """Where both are finite; None where NaN or infinity stands in one alone."""
    finite = np.isfinite(a) & np.isfinite(b)
    return finite if np.array_equal(a[~finite], b[~finite], equal_nan=True) else None


def relative_error(a: Any, b: Any, scale: float = 0.0) -> float:
    """‖a − b‖ / ‖b‖ in float64; ‖a − b‖ where b is zero.

    NaN and infinities are compared by their places: where they stand in one alone, the error is infinite, where they
    are all there is, NaN; else it is the error of the finite numbers.

    Args:
        a, b: arrays of one shape.
        scale: what to divide by instead of ‖b‖; 0: ‖b‖.
    """
    a, b = (np.asarray(array, np.float64).ravel() for array in (a, b))
    finite = _finite_places(a, b)
    if finite is None:
        return math.inf
    if a.size and not finite.any():
        return math.nan
    norm = scale or float(np.linalg.norm(b[finite]))
    return float(np.linalg.norm(a[finite] - b[finite])) / (norm or 1.0)


def difference(
    name: str,
    ours: Any,
    theirs: Any,
    exact: Any = None,
    tolerance: float = 0.0,
    rounding: float = 0.0,
    scale: float = 0.0,
    ceiling: float = CEILING,
) -> Difference:
    """Compare an array with the reference's.

    Args:
        name: what to call it.
        ours, theirs: arrays of one shape, any float or integer type.
        exact: the reference's array computed in float64, if there is one.
        tolerance: the relative error that passes.
        rounding: the least to assume of rounding; a scalar may come close to its float64 value by luck.
        scale: what the relative error is relative to; 0: ‖theirs‖.
        ceiling: see `Difference`.

    Raises:
        ValueError: the shapes differ.
    """
    a, b = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if a.shape != b.shape:
        raise ValueError(f"{name}: shape {a.shape} here, {b.shape} in the reference; make them equal")
    with np.errstate(invalid="ignore"):
        apart = np.where(
            (a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.nan_to_num(np.abs(a - b), nan=np.inf, posinf=np.inf)
        )
    place = np.unravel_index(int(apart.argmax()), a.shape) if a.size else ()
    finite = np.isfinite(a) & np.isfinite(b)
    norms = float(np.linalg.norm(a[finite]) * np.linalg.norm(b[finite]))
    return Difference(
        name=name,
        max_abs=float(apart.max(initial=0.0)),
        relative=relative_error(a, b, scale),
        cosine=float(np.vdot(a[finite], b[finite])) / norms if norms else float(not apart.any()),
        ours=float(a[place]) if a.size else 0.0,
        theirs=float(b[place]) if a.size else 0.0,
        place=tuple(int(index) for index in place),
        rounding=rounding if exact is None else max(rounding, relative_error(b, exact)),
        tolerance=tolerance,
        ceiling=ceiling,
    )
