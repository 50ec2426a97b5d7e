"""How far an array of the port may be from the reference's: bounds, their reasons and evidence.

An error passes if it is at most the tolerance, or at most 4 times the rounding. docs/parity.md,
"How a bound comes about", has the formulas and the measurements. Elsewhere are the limits that the
recorder needs too (trace/limits.py, with CEILING, the most rounding that decides, and EXACT, for
sums over workers), the tolerance by which hints judge a layer (trace/layer.py), and the error up to
which a cause explains a difference (trace/difference.py).
"""

import dataclasses
import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from resnet_fn.parity.pair.name_map import NameMap
from resnet_fn.parity.trace.data import Rounding
from resnet_fn.parity.trace.difference import DIFFERS, Difference, difference, norm
from resnet_fn.parity.trace.limits import CEILING, ROUNDING_FACTOR, SIGMAS
from resnet_fn.parity.trace.stages import ArrayId, Key
from resnet_fn.parity.trace.tree import Arrays

EQUAL = 0.0
"""Copies are equal bit for bit. docs/parity.md#tolerances"""

OUTPUTS = 1e-5
"""The tolerance of outputs, losses, norms and moving statistics. docs/parity.md#tolerances"""

GRADIENTS = 1e-4
"""The tolerance of gradients, and of weights after several updates. docs/parity.md#tolerances"""

CHANGES = 1e-3
"""The tolerance of a weight's change, also if the weight begins at zero, and of the losses of a
training. docs/parity.md#tolerances
"""

SETTINGS = 1e-6
"""The tolerance of settings, which MindSpore keeps in float32. docs/parity.md#tolerances"""

MOST_IN_MEDIAN = 1e-4
"""Arrays with more rounding than this do not count in the stage's median. docs/parity.md#median"""

NO_GRADIENT = 1e-6
"""Where the reference's gradient is None, the port's may be this fraction of the largest gradient in
the layer. docs/parity.md#no-gradient
"""

UNSURE_SHARE, UNSURE_SIZE = 0.01, 1e-6
"""A gradient's element is only rounding if both sides differ by more than the first fraction of the
element, or if the element is at most the second fraction of the largest. docs/parity.md#adam
"""

HALF_A_UNIT = 2.0**-24
"""Half a unit in the last place of float32, as a fraction of the number. docs/parity.md#units"""

CANCELLATION = 2.0**-22
"""The rounding of a loss alone, as a fraction of the largest output. docs/parity.md#units"""

UNITS_OF_TABLE = 4
"""A table that is computed in float32 may differ by so many units in the last place from one that
is computed in float64. docs/parity.md#units
"""

STANDARD_ERRORS = 6.0
"""The moments of initial values may differ by so many standard errors: 500 comparisons fail by
chance once in a million runs. docs/parity.md#initial-values
"""

CONSTANTS = 1e-6
"""The mean of numbers that are all equal may differ by this. docs/parity.md#initial-values"""

CHANCE = 1e-5
"""The fraction of an array's numbers that may be equal in two draws by chance.
docs/parity.md#initial-values
"""

MOST_BY_CHANCE = 1e-9
"""Rows that are constant by chance have at least this probability. docs/parity.md#initial-values
"""

ORTHOGONAL = 1e-4
"""The largest cosine of two orthogonal rows. docs/parity.md#initial-values"""

CHANGING_SHARE = 0.01
"""With a larger fraction of integers that change by rounding, an array is undecided.
docs/parity.md#integers
"""

KERNELS, UNSEEN_KERNELS = 1e-3, 5e-5
"""Up to these relative errors on changed inputs, MindSpore's kernels of tanh and elu may be the
cause: in a layer with such a kernel, or where such a function may run outside of layers.
docs/parity.md#what-the-batches-do-not-show
"""

TOO_SMALL = "too small for float32"
"""Why a change decides nothing: its weight's last place hides it. docs/parity.md#units"""

MASK_SCALE = 1e-4
"""The relative error of two factors by which dropout multiplies. docs/parity.md#tolerances"""


class Allowed(NamedTuple):
    """What passes, and by which rule."""

    tolerance: float  # a relative error that passes whatever the rounding
    rounding: float = 0.0  # the reference's relative rounding; a multiple of it passes
    why: str = ""  # the rule that gives the larger bound

    def compare(self, array: ArrayId | str, port: object, reference: object) -> Difference:
        """Compare two arrays of one shape with this bound."""
        return difference(array, port, reference, *self)


def larger_bound(tolerance: float, roundings: Mapping[str, float], reason: str = "") -> Allowed:
    """Return what a tolerance, and the largest of several roundings by reason, allow.

    `reason` names the tolerance's rule, if it is not the stage's tolerance.
    """
    why, rounding = max(roundings.items(), key=lambda one: one[1])
    if ROUNDING_FACTOR * rounding <= tolerance:
        why = reason or within(tolerance).why
    return Allowed(tolerance, rounding, why)


def within(tolerance: float) -> Allowed:
    """Return a bound without rounding: a tolerance, or equality."""
    return Allowed(tolerance, 0.0, "tolerance" if tolerance else "equal")


def exactly(
    array: ArrayId | str, port: np.ndarray, reference: np.ndarray, changing: np.ndarray | None
) -> Difference:
    """Compare integers or booleans by value, whatever their width.

    `changing` marks the elements that change by the reference's own rounding. They are excused,
    unless there are too many to decide anything.
    """
    equal = within(EQUAL).compare(array, port, reference)
    if changing is None or equal.verdict != DIFFERS:
        return equal
    count = int(changing.sum())
    apart = int((port != reference).sum())
    if count > CHANGING_SHARE * changing.size:
        words = f"{count} of {changing.size} integers change by the reference's own rounding"
        unsure = words if apart <= ROUNDING_FACTOR * count else ""
        return dataclasses.replace(equal, unsure=unsure)
    excused = int((changing & (port != reference)).sum())
    item = within(EQUAL).compare(array, np.where(changing, reference, port), reference)
    words = f"{excused} of {changing.size} integers excused, which change by rounding"
    return dataclasses.replace(item, why=words)


def rounding_of(
    names: NameMap, errors: Mapping[Key, float], name: str, given: Arrays, made: np.ndarray
) -> float:
    """Return the relative rounding of the array `made`, which is built from the reference's arrays
    `given` for the port's array `name`.

    The port's array may be a part of a larger one. It then gets the absolute error of the whole.
    """
    sources = [one for one in names.sources(name) if one in errors and one in given]
    off = math.hypot(*(errors[one] * (norm(given[one]) or 1.0) for one in sources))
    return off / (norm(made) or 1.0)


def capped_rounding(
    names: NameMap, errors: Mapping[Key, float], name: str, rounding: float, tolerance: float
) -> float:
    """Return `rounding`, but no more than the relative rounding of the whole array or the
    tolerance.

    A part of small numbers must not get all of the whole's error: a fault would pass there.
    """
    whole = max((errors.get(one, 0.0) for one in names.sources(name)), default=0.0)
    return min(rounding, max(whole, tolerance))


def median_of_stage(roundings: Sequence[float]) -> float:
    """Return the median rounding of a stage, which each of its arrays gets at least.

    A small array may be close to float64 by luck.
    """
    return float(np.median([error for error in roundings if error <= MOST_IN_MEDIAN] or [0.0]))


def growing(errors: Mapping[Key, float], outputs: Mapping[Key, float]) -> dict[Key, float]:
    """Return the rounding of each update's loss, at least that of its outputs and of all losses
    before.

    Rounding grows from update to update.
    """
    each = (max(0.0, error, outputs.get(update, 0.0)) for update, error in errors.items())
    return dict(zip(errors, itertools.accumulate(each, max), strict=True))


def unsure_elements(port: np.ndarray, reference: np.ndarray, only_rounding: bool) -> np.ndarray:
    """Return a mask of a gradient's elements that are only rounding.

    Adam changes a weight by up to the learning rate even if the gradient is only rounding.
    """
    size = np.abs(reference)
    small = (size > 0) & (size <= UNSURE_SIZE * size.max(initial=0))
    return small | (np.abs(port - reference) > UNSURE_SHARE * size) | only_rounding


def part_of_stage(item: Difference, size: float, whole: float, rounding: float) -> Difference:
    """Return the difference of an array that is only rounding, as a part of the whole stage.

    Such an array only needs to be small. `size` and `whole` are the norms of the array and the
    stage.
    """
    relative = item.relative * size / (whole or 1.0)
    return dataclasses.replace(
        item, relative=relative, rounding=rounding, why="only rounding: a part of the stage"
    )


def unit_of_stage(item: Difference, part: float) -> Difference:
    """Return the difference of a change that its weight's last place hides, as a part of all
    changes. `part` is the change's norm as a fraction of that of all changes.
    """
    return dataclasses.replace(
        item,
        relative=item.relative * part,
        rounding=item.rounding * part,
        tolerance=0.0,
        why="unit of the weight, as a part of the stage",
    )


def part_of_value(item: Difference, part: float, tolerance: float) -> Difference:
    """Return the difference of a change that is mostly rounding, as a part of the value.

    `part` is the change's norm as a fraction of the value's, and `tolerance` that of the value. If
    it is 0, values are not compared.
    """
    if not tolerance:
        return item
    return dataclasses.replace(
        item,
        relative=item.relative * part,
        rounding=item.rounding * part,
        tolerance=tolerance,
        why="measured rounding, as a part of the value",
    )


def zero_in_reference(item: Difference) -> Difference:
    """Return the difference of an array that should be zero: all of it is wrong, however small."""
    return dataclasses.replace(
        item, relative=1.0, rounding=0.0, tolerance=0.0, why="zero in the reference"
    )


def by_random_walk(updates: int, weights: np.ndarray, change: np.ndarray) -> Allowed:
    """Return the bound of a change by the optimizer alone.

    Each update rounds a weight to float32; the errors add up as in a random walk.
    """
    error = float(updates) ** 0.5 * HALF_A_UNIT * norm(weights) / (norm(change) or 1.0)
    return larger_bound(CHANGES, {"random walk of weights": min(error, CEILING)})


def by_cancellation(largest: float, factor: float, loss: float) -> Allowed:
    """Return the bound of a loss alone of outputs up to `largest` · `factor`.

    Where large numbers cancel, the small result keeps the rounding of the large ones.
    """
    error = CANCELLATION * largest * factor / (abs(loss) or 1.0)
    return larger_bound(OUTPUTS, {"cancellation of outputs": min(error, CEILING)})


def by_units_in_the_last_place(
    item: Difference, port: np.ndarray, reference: np.ndarray
) -> Difference:
    """Return the difference of two tables, with a tolerance if they are few units apart."""
    if not (np.abs(port - reference) <= UNITS_OF_TABLE * np.spacing(np.abs(reference))).all():
        return item
    return dataclasses.replace(item, tolerance=item.relative, why="units in the last place")


def with_flipped_ties(measured: Rounding, flipped: Rounding) -> Rounding:
    """Return the larger rounding of each array: as measured, or with flipped ties.

    A missing one counts as infinity.
    """
    return {
        stage: {
            name: max(error, flipped.get(stage, {}).get(name, math.inf))
            for name, error in errors.items()
        }
        for stage, errors in measured.items()
    }


def of_other_shape(array: ArrayId, port: np.ndarray, reference: np.ndarray) -> Difference:
    """Return the difference of two outputs whose shapes differ: nothing is allowed."""
    sizes = float(port.size), float(reference.size)
    return Difference(array, math.inf, math.inf, 0.0, *sizes, (), 0.0, OUTPUTS, "tolerance")


def tie_width(outputs: Collection[Difference]) -> float:
    """Return the distance from 0 within which rounding may change a ReLU input's sign, as a
    fraction of its RMS.

    `outputs` are those of layers in training mode. A layer that overflows in float32 is no measure.
    """
    errors = [max(one.relative, one.rounding) for one in outputs if one.rounding < CEILING]
    return SIGMAS * max(errors, default=0.0)


def mean_of_draws(count: int) -> float:
    """Return the allowed difference of the means of two draws, in standard deviations."""
    return STANDARD_ERRORS * math.sqrt(2 / count)


def deviation_of_draws(count: int) -> float:
    """Return the allowed relative difference of the standard deviations of two draws."""
    return min(mean_of_draws(count) / 2**0.5, 0.9)


def kurtosis_of_draws(count: int) -> float:
    """Return the allowed difference of the kurtosis of two draws."""
    return STANDARD_ERRORS * math.sqrt(48 / count)


def has_heavy_tails(count: int, kurtosis: float) -> bool:
    """Return whether a draw's kurtosis is too large for a normal distribution."""
    return kurtosis > 3 + STANDARD_ERRORS * math.sqrt(24 / count)


def moments_of_heavy_tails(*draws: np.ndarray) -> tuple[float, float]:
    """Return the allowed differences of standard deviation (as a fraction) and kurtosis of two
    draws with heavy tails, whose standard errors are larger than a normal distribution's.
    """
    deviation = kurtosis = 0.0
    for draw in draws:
        centred = draw - draw.mean()
        z = centred / centred.std()
        squares = z * z
        fourth = float(np.square(squares).mean())
        deviation += (fourth - 1) / 4 / z.size
        # how much each number changes the kurtosis
        part = squares * squares - 2 * fourth * squares - 4 * float((squares * z).mean()) * z
        kurtosis += float(part.var()) / z.size
    return STANDARD_ERRORS * math.sqrt(deviation), STANDARD_ERRORS * math.sqrt(kurtosis)


def without_tails(draw: np.ndarray) -> np.ndarray:
    """Return a draw without its numbers furthest from the median.

    As many large numbers as `STANDARD_ERRORS` squared may be in one draw and not in the other.
    """
    count = min(int(STANDARD_ERRORS**2), draw.size // 10)
    places = np.argpartition(np.abs(draw - np.median(draw)), draw.size - count - 1)
    return draw[places[: draw.size - count]]


def distribution_of_draws(count: int) -> float:
    """Return the allowed largest difference of the distribution functions of two draws.

    By Kolmogorov and Smirnov, as probable as `STANDARD_ERRORS` of a normal distribution.
    """
    return math.sqrt(-math.log(math.erfc(STANDARD_ERRORS / 2**0.5) / 2) / count)
