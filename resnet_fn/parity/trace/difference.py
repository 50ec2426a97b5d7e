"""Compare two arrays, and decide whether the difference is only rounding.

The reference also computes each array in float64. A difference is rounding, not a fault, if it is
not much larger than the reference's own float32 error.
"""

import dataclasses
import math
from dataclasses import field
from typing import Any

import numpy as np

from resnet_fn.parity.trace.limits import CEILING, NEVER_BEYOND, ROUNDING_FACTOR
from resnet_fn.parity.trace.stages import ArrayId

# the worst last
VERDICTS = OK, ROUNDING, UNDECIDED, DIFFERS = "ok", "rounding", "undecided", "DIFFERS"

FITS = 1e-3  # relative error up to which a cause explains a difference

_LARGEST = float(np.finfo(np.float32).max)

_APART = 1e6  # numbers above this times the median, such as −1e9, would hide all others in a norm


@dataclasses.dataclass(frozen=True)
class Difference:
    """The difference between one array and the reference's array."""

    id: ArrayId
    max_abs: float  # the largest |a − b|
    relative: float  # ‖a − b‖ / ‖b‖ (‖a − b‖ where b is zero)
    cosine: float  # the cosine of the angle between a and b; 1 where both are zero
    # port, reference: the values of a (the port's) and b (the reference's) where |a − b| is largest
    port: float
    reference: float
    place: tuple[int, ...]  # the index of that place
    # the reference's relative rounding: against float64, under noise or with flipped ties as far as
    # measured, or the rule's estimate if larger; 0 if unknown
    rounding: float
    tolerance: float  # the relative error that passes
    # which rule of compare/allowed.py gives the larger one of the tolerance and the rounding's
    # limit
    why: str = field(default="", compare=False)
    unsure: str = ""  # why the array decides nothing whatever its numbers are; empty otherwise

    @property
    def name(self) -> str:
        """The name of the parameter, output, input or layer."""
        return self.id.name

    @property
    def verdict(self) -> str:
        """One of "ok", "rounding" (beyond the tolerance, but only rounding), "undecided" and
        "DIFFERS".
        """
        if self.unsure:
            return UNDECIDED
        if math.isnan(self.relative):
            return UNDECIDED if self.tolerance else OK  # without a tolerance, arrays are copies
        if self.relative <= self.tolerance:
            return OK
        # whatever the rounding: NaN or infinity is on one side alone
        if math.isinf(self.relative) or self.relative > ROUNDING_FACTOR * self.rounding:
            return DIFFERS
        return ROUNDING if self.rounding <= CEILING else UNDECIDED

    @property
    def doubt(self) -> str:
        """The reason for the verdict "undecided"."""
        if self.unsure:
            return self.unsure
        if math.isnan(self.relative):
            return "no number is finite on either side"
        return (
            f"a relative rounding error of {self.rounding:.2g} in the reference is too large to "
            "compare"
        )

    @property
    def excess(self) -> float:
        """The relative error divided by the tolerance, or by the limit of rounding if the verdict
        is "rounding".
        """
        if math.isnan(self.relative):
            return math.inf
        allowed = max(
            self.tolerance, ROUNDING_FACTOR * self.rounding if self.verdict == ROUNDING else 0.0
        )
        return self.relative / allowed if allowed else (math.inf if self.relative else 0.0)

    @property
    def beyond(self) -> float:
        """The relative error divided by the limit of rounding if limit < error ≤ tolerance,
        else 0.
        """
        bound = max(NEVER_BEYOND, ROUNDING_FACTOR * self.rounding)
        return self.relative / bound if bound < self.relative <= self.tolerance else 0.0

    def values(self) -> str:
        """Return both values at the largest difference, as in "0.12 in the port, 0.13 in the
        reference at [0, 3]".
        """
        place = f" at {list(self.place)}" if self.place else ""
        return f"{self.port:.9g} in the port, {self.reference:.9g} in the reference{place}"


def norm(array: Any) -> float:
    """Return ‖array‖, computed in float64."""
    # in float32, 1e-23 squared would be 0
    return float(np.linalg.norm(np.asarray(array, np.float64)))


def are_integers(*arrays: Any) -> bool:
    """Return whether all arrays have integers or booleans, of any width."""
    return all(np.asarray(array).dtype.kind in "iub" for array in arrays)


def _apart(a: Any, b: Any) -> np.ndarray:
    """Return |a − b| of integers in float64, which is at least 1 where they are not equal."""
    a, b = np.asarray(a), np.asarray(b)
    wide = np.abs(np.subtract(a, b, dtype=np.float64))
    apart: np.ndarray = np.where(a != b, np.maximum(wide, 1.0), 0.0)
    return apart


def in_range(array: Any, infinities: bool = False) -> np.ndarray:
    """Return an array in float64, with ± float32's largest number for finite numbers beyond it.

    If `infinities` is True, infinities become this number, too.
    """
    wide = np.asarray(array, np.float64)
    if np.asarray(array).dtype != np.float64 and not infinities:
        return wide  # no such number
    beyond = np.abs(wide) > _LARGEST
    if not infinities:
        beyond &= np.isfinite(wide)
    return (
        np.clip(wide, -_LARGEST, _LARGEST, where=beyond, out=wide.copy()) if beyond.any() else wide
    )


def relative_error(a: Any, b: Any) -> float:
    """Return ‖a − b‖ / ‖b‖ in float64, or ‖a − b‖ if b is zero.

    The error is infinite if the shapes differ or NaN or infinities are at different places, and NaN
    if no number is finite. Equal NaN and equal infinities are ignored. Finite numbers beyond
    float32's range count as its largest number. Very large numbers are compared separately, and the
    larger of both errors is returned.
    """
    if np.shape(a) != np.shape(b):
        return math.inf
    if are_integers(a, b):
        return norm(_apart(a, b)) / (norm(b) or 1.0)
    a, b = (in_range(array).ravel() for array in (a, b))
    finite = np.isfinite(a) & np.isfinite(b)
    if not finite.all():  # else nothing is copied: a net's arrays are large
        if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
            return math.inf
        if not finite.any():
            return math.nan
        a, b = a[finite], b[finite]
    sizes = np.abs(b)
    # The median is slow. If more than half of the numbers are near the largest, none is far above
    # the median.
    if a.size and np.count_nonzero(sizes > sizes.max() / _APART) <= a.size // 2:
        median = np.median(sizes)
        large = sizes > _APART * median
        if median and large.any():
            return max(norm(a[part] - b[part]) / (norm(b[part]) or 1.0) for part in (large, ~large))
    return norm(a - b) / (norm(b) or 1.0)


def difference(
    array: ArrayId | str,
    port: Any,
    reference: Any,
    tolerance: float = 0.0,
    rounding: float = 0.0,
    why: str = "",
) -> Difference:
    """Compare an array with the reference's array of the same shape.

    `array` is the array's id, or only its name.

    `tolerance` is the relative error that always passes. `rounding` is the relative rounding of
    `reference`, of which a multiple passes. `why` names the rule that gives the larger bound.
    """
    exact = are_integers(port, reference)
    a, b = in_range(port), in_range(reference)
    array = ArrayId(array) if isinstance(array, str) else array
    if a.shape != b.shape:
        raise ValueError(
            f"{array.name}: the shape is {a.shape}, but {b.shape} in the reference; make the "
            "shapes equal"
        )
    with np.errstate(invalid="ignore"):
        apart = _apart(port, reference) if exact else np.abs(a - b)
    unclear = ~np.isfinite(apart)
    if unclear.any():
        equal = (a == b) | (np.isnan(a) & np.isnan(b))
        apart = np.where(unclear, np.where(equal, 0.0, np.inf), apart)
    place = np.unravel_index(int(apart.argmax()), a.shape) if a.size else ()
    finite = np.isfinite(a) & np.isfinite(b) if unclear.any() else ...
    norms = norm(a[finite]) * norm(b[finite])
    return Difference(
        id=array,
        max_abs=float(apart.max(initial=0.0)),
        relative=relative_error(port, reference),
        cosine=float(np.vdot(a[finite], b[finite])) / norms if norms else float(not apart.any()),
        port=float(a[place]) if a.size else 0.0,
        reference=float(b[place]) if a.size else 0.0,
        place=tuple(int(index) for index in place),
        rounding=rounding,
        tolerance=tolerance,
        why=why,
    )
