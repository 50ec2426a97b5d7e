"""The difference between two arrays, and its verdict.

The reference also computes each array in float64. If its float32 array is about as far from its float64 array as from
the MindSpore net's array, the difference is rounding, not a fault.
"""

import dataclasses
import math
from typing import Any

import numpy as np

VERDICTS = OK, ROUNDING, UNDECIDED, DIFFERS = "ok", "rounding", "undecided", "DIFFERS"  # the worst last

# Two float32 implementations that add in different orders are about equally far from float64 (docs/migrating.md).
ROUNDING_FACTOR = 4.0
# A reference with more rounding would allow an error of a quarter of the array: the verdict is "undecided".
CEILING = 0.25 / ROUNDING_FACTOR
_LEAST = 1e-6  # relative error that is never beyond rounding
FITS = 1e-3  # relative error up to which a cause explains a difference
_APART = 1e6  # numbers above this times the median (a mask's −1e9) would hide all others in a norm


@dataclasses.dataclass(frozen=True)
class Difference:
    """How one array differs from the reference's."""

    name: str  # the name of the parameter, layer or update
    max_abs: float  # the largest |a − b|
    relative: float  # ‖a − b‖ / ‖b‖ (‖a − b‖ where b is zero)
    cosine: float  # the cosine of the angle between a and b; 1 where both are zero
    # ours, theirs: the values of a (MindSpore's) and b (the reference's) where |a − b| is largest
    ours: float
    theirs: float
    place: tuple[int, ...]  # the index of that place
    # relative distance of the reference's float32 array from its float64 one, at least the stage's own estimate;
    # 0 if there is none
    rounding: float
    tolerance: float  # the relative error that passes

    @property
    def verdict(self) -> str:
        """ "ok", "rounding" (above the tolerance, but no further than float32 itself), "undecided", or "DIFFERS"."""
        if math.isnan(self.relative):
            return UNDECIDED if self.tolerance else OK  # without a tolerance: copies, equal bit for bit
        if self.relative <= self.tolerance:
            return OK
        if self.relative > ROUNDING_FACTOR * self.rounding:
            return DIFFERS
        return ROUNDING if self.rounding <= CEILING else UNDECIDED

    @property
    def doubt(self) -> str:
        """Why the verdict is "undecided"."""
        if math.isnan(self.relative):
            return "no number is finite on either side"
        return f"the reference itself is {self.rounding:.2g} of its size away from its float64"

    @property
    def excess(self) -> float:
        """The relative error divided by the tolerance or, if the verdict is "rounding", by what rounding allows."""
        if math.isnan(self.relative):
            return math.inf
        allowed = max(self.tolerance, ROUNDING_FACTOR * self.rounding if self.verdict == ROUNDING else 0.0)
        return self.relative / allowed if allowed else (math.inf if self.relative else 0.0)

    @property
    def beyond(self) -> float:
        """The relative error divided by what rounding explains, if beyond that but within the tolerance; else 0."""
        bound = max(_LEAST, ROUNDING_FACTOR * self.rounding)
        return self.relative / bound if bound < self.relative <= self.tolerance else 0.0

    def values(self) -> str:
        """A text with both values at the largest difference: "0.12 here, 0.13 in the reference at [0, 3]"."""
        place = f" at {list(self.place)}" if self.place else ""
        return f"{self.ours:.9g} here, {self.theirs:.9g} in the reference{place}"


def norm(array: Any) -> float:
    """‖array‖ in float64; in float32 the square of a number such as 1e-23 would be 0."""
    return float(np.linalg.norm(np.asarray(array, np.float64)))


def relative_error(a: Any, b: Any) -> float:
    """‖a − b‖ / ‖b‖ in float64; ‖a − b‖ where b is zero.

    NaN and infinities must be at the same places, else the error is infinite. If no number is finite, the error is NaN.
    Otherwise it is the error of the finite numbers; if some are very large (`_APART`), of these or of the rest.
    """
    a, b = (np.asarray(array, np.float64).ravel() for array in (a, b))
    finite = np.isfinite(a) & np.isfinite(b)
    if not finite.all():  # else nothing is copied: a net's arrays are large
        if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
            return math.inf
        if not finite.any():
            return math.nan
        a, b = a[finite], b[finite]
    sizes = np.abs(b)
    # The median is slow. If more than half of the numbers are near the largest, none is far above the median.
    if a.size and np.count_nonzero(sizes > sizes.max() / _APART) <= a.size // 2:
        median = np.median(sizes)
        large = sizes > _APART * median
        if median and large.any():
            return max(norm(a[part] - b[part]) / (norm(b[part]) or 1.0) for part in (large, ~large))
    return norm(a - b) / (norm(b) or 1.0)


def difference(name: str, ours: Any, theirs: Any, tolerance: float = 0.0, rounding: float = 0.0) -> Difference:
    """Compare an array with the reference's, of any float or integer types; ValueError if the shapes differ.

    `tolerance` is the relative error that passes; `rounding` is the relative error of `theirs` against float64.
    """
    a, b = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if a.shape != b.shape:
        raise ValueError(f"{name}: shape {a.shape} here, {b.shape} in the reference; make them equal")
    with np.errstate(invalid="ignore"):
        apart = np.abs(a - b)
    unclear = ~np.isfinite(apart)
    if unclear.any():
        equal = (a == b) | (np.isnan(a) & np.isnan(b))
        apart = np.where(unclear, np.where(equal, 0.0, np.inf), apart)
    place = np.unravel_index(int(apart.argmax()), a.shape) if a.size else ()
    finite = np.isfinite(a) & np.isfinite(b) if unclear.any() else ...
    norms = norm(a[finite]) * norm(b[finite])
    return Difference(
        name=name,
        max_abs=float(apart.max(initial=0.0)),
        relative=relative_error(a, b),
        cosine=float(np.vdot(a[finite], b[finite])) / norms if norms else float(not apart.any()),
        ours=float(a[place]) if a.size else 0.0,
        theirs=float(b[place]) if a.size else 0.0,
        place=tuple(int(index) for index in place),
        rounding=rounding,
        tolerance=tolerance,
    )
