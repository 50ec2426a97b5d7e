"""Compare two arrays, and decide whether the difference is only rounding.

The reference also computes each array in float64. A difference is rounding, not a fault, if it is
not much larger than the reference's own float32 error.
"""

import dataclasses
import math
import sys
from dataclasses import field
from typing import Any

import numpy as np

from resnet_fn.parity.trace import reasons
from resnet_fn.parity.trace.limits import CEILING, NEVER_BEYOND, ROUNDING_FACTOR
from resnet_fn.parity.trace.stages import ArrayId
from resnet_fn.parity.trace.tree import TEXT

# the worst last
VERDICTS = OK, ROUNDING, UNDECIDED, DIFFERS = "ok", "rounding", "undecided", "DIFFERS"

AGREES = OK, ROUNDING

FITS = 1e-3  # relative error up to which a cause explains a difference

# Numbers above this times the median, such as −1e4 in a mask, would hide all others in a norm. Both
# parts are compared, each with its own rounding. Where many numbers are 0, the median may be near
# the smallest of the others: most of those that are not 0 are never apart.
_APART = 100.0

# Where most numbers are a mask's constants, such as −1e4 and (of two masks) −2e4, plus usual numbers,
# all parts are compared, too. A constant is at least `_MASK`. The numbers of one are within the
# fraction `_SPREAD` of each other. A net has few constants; if there are several, each has at least
# `_OFTEN` numbers on average. Those above a gap do not count for those below it.
_MASK, _SPREAD, _OFTEN, _CONSTANTS = 1000.0, 0.1, 4, 4

_LARGEST = float(np.finfo(np.float32).max)

WIDE = 1e-3  # the verdict counts arrays that pass by a bound above this


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
    # the reason for the larger one of the tolerance and the rounding's limit (trace/reasons.py)
    why: str = field(default="", compare=False)
    unsure: str = ""  # why the array decides nothing whatever its numbers are; empty otherwise
    # whether the reference's numbers are estimates, so that only `relative` is shown
    estimated: bool = False

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
        """How bad the difference is among those with its verdict: the relative error divided by
        what lets it pass.

        What lets an array pass is the limit of rounding for the verdict "rounding", and the
        tolerance for any other. Without a tolerance, any error is infinitely bad; so is an
        undecided array without a finite number.
        """
        if math.isnan(self.relative):
            return math.inf
        limit = self.tolerance
        if self.verdict == ROUNDING:
            limit = ROUNDING_FACTOR * self.rounding
        return _ratio(self.relative, limit)

    @property
    def is_lent(self) -> bool:
        """Whether the array passes only by a bound above `WIDE`, or by ties."""
        if self.why == reasons.TIES:
            return self.verdict in AGREES
        return self.verdict == ROUNDING and ROUNDING_FACTOR * self.rounding > WIDE

    @property
    def beyond(self) -> float:
        """The relative error divided by the limit of rounding if limit < error ≤ tolerance,
        else 0.
        """
        bound = max(NEVER_BEYOND, ROUNDING_FACTOR * self.rounding)
        return self.relative / bound if bound < self.relative <= self.tolerance else 0.0

    def values(self, port: str = "in the port", reference: str = "in the reference") -> str:
        """Return both values at the largest difference, as in "0.12 in the port, 0.13 in the
        reference at [0, 3]"; of estimates only the relative error.
        """
        if self.estimated:
            return f"about {self.relative:.2g} of the reference's norm apart"
        where = f" at {list(self.place)}" if self.place else ""
        # the port's array may have the place of a text by its shape alone
        values = self.port, self.reference
        if self.name.endswith(TEXT) and all(map(_is_character, values)):
            port_letter, reference_letter = (chr(int(value)) for value in values)
            return f"{port_letter!r} {port}, {reference_letter!r} {reference}{where}"
        return f"{self.port:.9g} {port}, {self.reference:.9g} {reference}{where}"


def _is_character(value: float) -> bool:
    return value.is_integer() and 0 <= value <= sys.maxunicode


def norm(array: Any) -> float:
    """Return ‖array‖, computed in float64."""
    # in float32, 1e-23 squared would be 0
    return float(np.linalg.norm(np.asarray(array, np.float64)))


def same_numbers(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return where two arrays have the same number, the same infinity, or both NaN."""
    return (a == b) | (np.isnan(a) & np.isnan(b))


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


def _finite_sizes(array: Any) -> np.ndarray:
    """Return the numbers' absolute values, with 0 for those that are not finite."""
    sizes = np.abs(in_range(array))
    return np.where(np.isfinite(sizes), sizes, 0.0)


def _large_parts(array: Any) -> list[np.ndarray]:
    """Return masks of the numbers that are compared apart: of each constant of a mask, and of the
    others that are far above the median.
    """
    sizes = _finite_sizes(array)
    if not sizes.size:
        return []
    largest = float(sizes.max())
    parts = _mask_levels(sizes, largest)
    # The median is slow. If more than half of the numbers are near the largest, none is far above
    # the median.
    near = sizes > largest / _APART
    if np.count_nonzero(near) <= sizes.size // 2:
        far = sizes > _APART * np.median(sizes)
        count = np.count_nonzero(far)
        if 0 < count <= np.count_nonzero(sizes) - count:
            for level in parts:
                far &= ~level
            parts.append(far)
    return parts


def mask_levels(array: Any) -> list[np.ndarray]:
    """Return masks of the numbers that are a mask's constant plus a usual number, for each
    constant.
    """
    sizes = _finite_sizes(array)
    return _mask_levels(sizes, float(sizes.max(initial=0.0)))


def _mask_levels(sizes: np.ndarray, largest: float) -> list[np.ndarray]:
    """Return masks of each constant's numbers, from the numbers' sizes and the largest of these.

    They may be more than half of all, as in logits of which few are allowed. Below the last
    constant is a gap.
    """
    levels: list[np.ndarray] = []
    known = count = 0  # levels above the last gap, and the count of numbers of those below it
    left = sizes
    while len(levels) < _CONSTANTS and largest >= _MASK:
        level = left >= (1 - _SPREAD) * largest
        count += np.count_nonzero(level)
        constants = len(levels) + 1 - known
        if levels and count < _OFTEN * constants:
            break
        levels.append(level)
        least = float(left[level].min())
        left = np.where(level, 0.0, left)
        largest = float(left.max())
        if 0.0 < largest < least / _APART:
            known, count = len(levels), 0
    return levels[:known]


def _most_are_levels(array: Any) -> bool:
    """Return whether most numbers are a mask's constants plus usual ones."""
    count = 0
    for level in mask_levels(array):
        count += np.count_nonzero(level)
    return count > np.size(array) / 2


def large_numbers(array: np.ndarray) -> np.ndarray:
    """Return a mask of the numbers that are compared apart."""
    parts = _large_parts(array)
    return np.logical_or.reduce(parts) if parts else np.zeros(array.shape, bool)


def _error(a: np.ndarray, b: np.ndarray) -> float:
    """Return ‖a − b‖ / ‖b‖ of finite numbers."""
    return norm(a - b) / (norm(b) or 1.0)


def errors_of_parts(a: Any, b: Any, like: Any) -> tuple[float, float | None]:
    """Return the relative errors of the usual numbers and of the large ones, if there are any. The
    latter is the largest one of the errors of a mask's constants and of other large numbers.

    The reference's array `like` shows which numbers are large; None: all are usual. An error is
    ‖a − b‖ / ‖b‖ in float64, or ‖a − b‖ if b is zero. It is infinite if the shapes differ, or if NaN
    or infinities are at different places, and NaN if no number is finite. Equal NaN and equal
    infinities are ignored.
    """
    if np.shape(a) != np.shape(b):
        return math.inf, None
    if are_integers(a, b):
        return norm(_apart(a, b)) / (norm(b) or 1.0), None
    a, b = in_range(a), in_range(b)
    parts = [] if like is None else _large_parts(like)
    finite = np.isfinite(a) & np.isfinite(b)
    if not finite.all():  # else nothing is copied: a net's arrays are large
        if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
            return math.inf, None
        if not finite.any():
            return math.nan, None
        parts = [part[finite] for part in parts]
        a, b = a[finite], b[finite]
    parts = [part for part in parts if part.any()]  # an infinity has left some empty
    if not parts:
        return _error(a, b), None
    usual = ~np.logical_or.reduce(parts)
    of_large = max(_error(a[part], b[part]) for part in parts)
    return _error(a[usual], b[usual]), of_large


def relative_error(a: Any, b: Any) -> float:
    """Return the larger one of both parts' errors (`errors_of_parts`)."""
    usual, large = errors_of_parts(a, b, b)
    return usual if large is None else max(usual, large)


def _ratio(error: float, limit: float) -> float:
    if limit:
        return error / limit
    return math.inf if error else 0.0


def _distance(error: float, tolerance: float, rounding: float) -> tuple[int, float]:
    """Return how far an error is beyond its bound: what differs is further than what is undecided,
    and this than what passes.
    """
    ratio = _ratio(error, max(tolerance, ROUNDING_FACTOR * rounding))
    if ratio > 1:
        return 2, ratio
    is_undecided = error > tolerance and rounding > CEILING
    return int(is_undecided), ratio


def difference(
    array: ArrayId | str,
    port: Any,
    reference: Any,
    tolerance: float = 0.0,
    rounding: float = 0.0,
    why: str = "",
    large: tuple[float, str] | None = None,
) -> Difference:
    """Compare an array with the reference's array of the same shape.

    `array` is the array's id, or only its name.

    `tolerance` is the relative error that always passes. `rounding` is the relative rounding of
    `reference`, of which a multiple passes. `why` names the rule that gives the larger bound.
    `large` has `rounding` and `why` of the large numbers, if these are others. The result has the
    error, rounding and `why` of the part that is further beyond its bound; where most numbers are a
    mask's constants, and no digit of the others is correct, the error of all if it passes.
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
    not_finite = ~np.isfinite(apart)
    if not_finite.any():
        apart = np.where(not_finite, np.where(same_numbers(a, b), 0.0, np.inf), apart)
    position = np.unravel_index(int(apart.argmax()), a.shape) if a.size else ()
    finite = np.isfinite(a) & np.isfinite(b) if not_finite.any() else ...
    norms = norm(a[finite]) * norm(b[finite])
    relative, of_large = errors_of_parts(port, reference, reference)
    if of_large is not None:
        other, other_why = large or (rounding, why)
        usual = _distance(relative, tolerance, rounding)
        if _distance(of_large, tolerance, other) > usual:
            relative, rounding, why = of_large, other, other_why
        elif usual[0] == 1 and rounding >= 1 and _most_are_levels(reference):
            # no digit of the usual numbers is correct: the error of all decides if it passes
            whole = _error(a[finite], b[finite])
            if whole <= tolerance:
                relative, rounding, why = whole, other, other_why
    return Difference(
        id=array,
        max_abs=float(apart.max(initial=0.0)),
        relative=relative,
        cosine=float(np.vdot(a[finite], b[finite])) / norms if norms else float(not apart.any()),
        port=float(a[position]) if a.size else 0.0,
        reference=float(b[position]) if a.size else 0.0,
        place=tuple(int(index) for index in position),
        rounding=rounding,
        tolerance=tolerance,
        why=why,
    )
