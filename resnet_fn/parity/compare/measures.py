"""Differences by another measure than the array's own norm and its bound.

docs/parity.md, "How a bound comes about", has when each applies.
"""

import dataclasses
import math

import numpy as np

from resnet_fn.parity.compare.allowed import (
    NO_TOLERANCE,
    OUTPUTS_TOLERANCE,
    TIE_FACTOR,
    Allowed,
    or_one,
    within,
)
from resnet_fn.parity.trace import reasons
from resnet_fn.parity.trace.difference import DIFFERS, Difference, norm, same_numbers
from resnet_fn.parity.trace.limits import ROUNDING_FACTOR
from resnet_fn.parity.trace.stages import ArrayId

UNITS_OF_TABLE = 4
"""A table that is computed in float32 may differ by so many units in the last place from one that
is computed in float64. docs/parity.md#units
"""

CHANGING_SHARE = 0.01
"""With a larger fraction of integers that change by rounding, an array is undecided: else a fault
could hide among those that are excused. docs/parity.md#integers
"""


def relative_to_stage(item: Difference, error: float, whole: float, rounding: float) -> Difference:
    """Return the difference of an array that is only rounding, relative to the whole stage.

    Such an array only needs to be small. Its tolerance stays. `error` is the norm of the error, and
    `whole` that of the stage.
    """
    relative = error / or_one(whole)
    return dataclasses.replace(
        item, relative=relative, rounding=rounding, why=reasons.PART_OF_STAGE
    )


def as_fraction(item: Difference, fraction: float, tolerance: float, why: str) -> Difference:
    """Return the difference of a change, relative to something larger: to the value, or to all
    changes.

    `fraction` is the norm of the change divided by the norm of the larger one. `tolerance` is that
    of the larger one.
    """
    return dataclasses.replace(
        item,
        relative=item.relative * fraction,
        rounding=item.rounding * fraction,
        tolerance=tolerance,
        why=why,
    )


def as_zero_in_reference(item: Difference) -> Difference:
    """Return the difference of an array that should be zero: all of it is wrong, however small.

    It is for a change, or a gradient that is None. A gradient of zeros is only rounding.
    """
    return dataclasses.replace(item, relative=1.0, rounding=0.0, tolerance=0.0, why=reasons.ZERO)


def without_step_ties(
    bound: Allowed, item: Difference, port: np.ndarray, reference: np.ndarray, flipped: np.ndarray
) -> Difference:
    """Return the difference of outputs without what ties explain.

    Each element may be apart by `TIE_FACTOR` times its change where all ties are decided otherwise
    (`flipped`). Elements without a tie have no such allowance.
    """
    if flipped.shape != reference.shape:
        return item
    equal = same_numbers(port, reference)
    with np.errstate(invalid="ignore"):  # of equal infinities
        apart = np.where(equal, 0.0, np.subtract(port, reference, dtype=np.float64))
        excused = TIE_FACTOR * np.abs(np.subtract(flipped, reference, dtype=np.float64))
    # where a tie makes a number infinite or NaN, nothing is excused
    excused = np.nan_to_num(excused, posinf=0.0)
    beyond = np.sign(apart) * np.maximum(np.abs(apart) - excused, 0.0)
    without = np.where(beyond, reference + beyond, reference)
    rest = bound.compare(item.id, without, reference)
    if rest.verdict == DIFFERS:
        return item
    # values and place are still those of the port: `without` is made up
    return dataclasses.replace(
        item,
        relative=rest.relative,
        rounding=rest.rounding,
        why=reasons.TIES,
    )


def integer_difference(
    array: ArrayId | str, port: np.ndarray, reference: np.ndarray, changing: np.ndarray | None
) -> Difference:
    """Compare integers or booleans by value, whatever their width.

    `changing` marks the elements that change by the reference's own rounding. They are excused. If
    they are more than `CHANGING_SHARE`, an array that is not equal is undecided, or differs if more
    than 4 times as many elements are not equal.
    """
    equal = within(NO_TOLERANCE).compare(array, port, reference)
    if changing is None or equal.verdict != DIFFERS:
        return equal
    count = int(changing.sum())
    apart = int((port != reference).sum())
    if count > CHANGING_SHARE * changing.size:
        doubt = f"{count} of {changing.size} integers change by the reference's own rounding"
        unsure = doubt if apart <= ROUNDING_FACTOR * count else ""
        return dataclasses.replace(equal, unsure=unsure)
    excused = int((changing & (port != reference)).sum())
    item = within(NO_TOLERANCE).compare(array, np.where(changing, reference, port), reference)
    if item.verdict == DIFFERS:
        return item
    return dataclasses.replace(item, why=f"{excused} of {changing.size} {reasons.EXCUSED}")


def as_units_in_the_last_place(
    item: Difference, port: np.ndarray, reference: np.ndarray
) -> Difference:
    """Return the difference of two tables, with a tolerance if they are few units apart."""
    if not (np.abs(port - reference) <= UNITS_OF_TABLE * np.spacing(np.abs(reference))).all():
        return item
    units = UNITS_OF_TABLE * norm(np.spacing(np.abs(reference))) / or_one(norm(reference))
    # it passes as `ok`, also if its error is that of large numbers, which are compared apart
    tolerance = max(units, item.relative)
    return dataclasses.replace(item, tolerance=tolerance, why=reasons.UNITS)


def other_shape_difference(
    array: ArrayId, port: np.ndarray, reference: np.ndarray, rounding: float
) -> Difference:
    """Return the difference of two outputs whose shapes differ: nothing is allowed.

    It is undecided if the reference's shape depends on rounding, which is infinite then.
    """
    return Difference(
        array,
        max_abs=math.inf,
        relative=math.inf,
        cosine=0.0,
        port=float(port.size),
        reference=float(reference.size),
        place=(),
        rounding=rounding,
        tolerance=OUTPUTS_TOLERANCE,
        why=reasons.OTHER_SHAPE,
        unsure="its shape depends on rounding" if math.isinf(rounding) else "",
    )
