"""How far an array of the port may be from the reference's: bounds, their reasons and evidence.

This module has the numbers; what follows from them is decided by `Difference.verdict`
(trace/difference.py). An error passes if it is at most the tolerance, and differs if it is above
both the tolerance and 4 (ROUNDING_FACTOR) times the rounding. In between it passes if the rounding
is at most 1/16 (CEILING), else the array is undecided. Both names are in trace/limits.py, with
other limits that the recorder needs too.

Below are tolerances and other constants, then functions in five sections: the bound itself, the
rounding of an array, ties, changes, an optimizer or a loss alone. Functions are named by what they
return: a rounding (…_rounding, rounding_…, `median_of_stage`), a bound (…_bound, `within`), or what
roundings are made from (`tie_width`, `random_walk_norm`).

Differences by another measure than the array's own norm are in compare/measures.py.

Numbers far above an array's median ("large", such as −1e4 in a mask) would hide all others in a
norm. They are compared apart (`difference.errors_of_parts`), with a rounding of their own; in
layers and probes, both parts have the larger rounding of the two.

docs/parity.md, "How a bound comes about", has the formulas and the measurements, and limits that
are elsewhere.
"""

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from resnet_fn.parity.pair.name_map import NameMap
from resnet_fn.parity.trace import reasons, stages
from resnet_fn.parity.trace.data import Rounding
from resnet_fn.parity.trace.difference import (
    Difference,
    difference,
    large_numbers,
    norm,
)
from resnet_fn.parity.trace.limits import CEILING, ROUNDING_FACTOR
from resnet_fn.parity.trace.stages import ArrayId, Key
from resnet_fn.parity.trace.tree import Arrays

NO_TOLERANCE = 0.0
"""Copies are equal bit for bit. docs/parity.md#tolerances"""

OUTPUTS_TOLERANCE = 1e-5
"""The tolerance of outputs, losses and norms: of what one pass computes. Layers, probes, the loss
alone and a hint of untrained arrays have it, too. It also limits the change of moving statistics,
as a fraction of their value. docs/parity.md#tolerances
"""

GRADIENTS_TOLERANCE = 1e-4
"""The tolerance of gradients, which are summed over a whole backward pass.
docs/parity.md#tolerances
"""

LATER_OUTPUTS_TOLERANCE = 1e-4
"""The tolerance of outputs after the updates, with what several updates have moved.
docs/parity.md#tolerances
"""

VALUE_TOLERANCE = 1e-4
"""The tolerance of arrays after several updates, relative to their values: of untrained ones, and
of those whose change rounding hides. docs/parity.md#tolerances
"""

CHANGES_TOLERANCE = 1e-3
"""The tolerance of a weight's change, also if the weight begins at zero, and of the losses of a
training. docs/parity.md#tolerances
"""

SETTINGS_TOLERANCE = 1e-6
"""The tolerance of settings, which MindSpore keeps in float32. docs/parity.md#tolerances"""

DROPOUT_FACTOR_TOLERANCE = 1e-4
"""The relative error of two factors by which dropout multiplies. Each is one float32 number, an
output of a dropout that gets ones. docs/parity.md#tolerances
"""

MOST_IN_MEDIAN = 1e-4
"""Arrays with more rounding than this do not count in the stage's median: a few that are only
rounding would raise the bound of all others. docs/parity.md#median
"""

NO_GRADIENT = 1e-6
"""Where the reference's gradient is None, the port's may be this fraction of the largest gradient
in the layer: what cancels in float32 may leave so much. docs/parity.md#no-gradient
"""

UNDERFLOW = 2.0**-103
"""A gradient whose numbers are all smaller has no correct digit: its factors may be smaller than
2^-126, which some of MindSpore's kernels take for 0. Of a number above 2^-103 = 2^23 · 2^-126, so
small a summand is below the last place. docs/parity.md#only-rounding
"""

KERNEL_FACTOR = 2.0
"""An array may be apart by so many times what inaccurate kernels of the port change in it: by that
error, and by as much again for all other rounding. docs/parity.md#units
"""

TIE_FACTOR = 2.0
"""An array may be apart by so many times its change where all ties of functions are decided
otherwise: some ties alone may change it more than all. docs/parity.md#ties
"""

HALF_A_UNIT = 2.0**-24
"""Half a unit in the last place of float32, as a fraction of the number. docs/parity.md#units"""

CANCELLATION_UNIT = 2.0**-22
"""The rounding of a loss alone, as a fraction of the largest output. docs/parity.md#units"""

KERNELS_TOLERANCE, UNSEEN_KERNELS_TOLERANCE = 1e-3, 5e-5
"""Up to these relative errors on changed inputs, MindSpore's kernels of tanh and elu may be the
cause: in a layer with such a kernel, or where such a function may run outside of layers. The first
is chosen; the second is just above 4e-5, by which such a kernel is off at most. Outputs of the whole
net on scaled inputs may be apart by `KERNEL_FACTOR` times the second.
docs/parity.md#what-the-batches-do-not-show
"""

_BY_ELEMENT = frozenset({stages.EVAL_FORWARD.name, stages.TRAIN_FORWARD.name})
"""Outputs, of both modes: ties of functions widen no rounding of theirs, because they are compared
element by element (`without_step_ties`). docs/parity.md#ties
"""

_FROM_OUTPUTS = frozenset({stages.LOSS.name, stages.ALL_OUTPUTS.name, stages.TRAJECTORY.name})
"""What is computed from outputs: with equal outputs, both sides have decided ties of functions
alike, and these widen no rounding. docs/parity.md#ties
"""


# The bound itself: an `Allowed`, which is a tolerance and the largest rounding, with the reason that
# decided (trace/reasons.py). Outputs and gradients have a `larger_bound`, copies and settings
# `within`. Changes, and an optimizer or a loss alone, have bounds of their own, further below.


class Allowed(NamedTuple):
    """What passes, and by which rule."""

    tolerance: float  # a relative error that passes whatever the rounding
    rounding: float = 0.0  # the reference's relative rounding; a multiple of it passes
    why: str = ""  # the reason for the larger bound (trace/reasons.py)
    # `rounding` and `why` of the large numbers, which are compared apart; None: the same
    large: tuple[float, str] | None = None

    def compare(self, array: ArrayId | str, port: object, reference: object) -> Difference:
        """Compare two arrays of one shape with this bound."""
        return difference(
            array,
            port,
            reference,
            tolerance=self.tolerance,
            rounding=self.rounding,
            why=self.why,
            large=self.large,
        )


def or_one(size: float) -> float:
    """Return what an error is divided by: relative to nothing, it is the error itself."""
    return size or 1.0


def within(tolerance: float) -> Allowed:
    """Return a bound without rounding: a tolerance, or equality."""
    return Allowed(tolerance, 0.0, reasons.TOLERANCE if tolerance else reasons.EQUAL)


def larger_bound(
    tolerance: float,
    roundings: Mapping[str, float],
    large: float | None = None,
) -> Allowed:
    """Return what a tolerance, and the largest of several roundings by reason, allow.

    For example, a tolerance of 1e-4 and a largest rounding of 8e-5 allow 3.2e-4. `roundings` is not
    empty. `large` is the measured rounding of the array's large numbers. It takes the place of that
    of the others; all other roundings are the large numbers', too.
    """
    rounding, why = _largest(tolerance, roundings)
    of_large = None
    if large is not None:
        of_large = _largest(tolerance, {**roundings, reasons.MEASURED: large})
    return Allowed(tolerance, rounding, why, of_large)


def _largest(tolerance: float, roundings: Mapping[str, float]) -> tuple[float, str]:
    """Return the largest rounding with its reason or, if a tolerance allows more, with that one."""
    why, rounding = max(roundings.items(), key=lambda item: item[1])
    if ROUNDING_FACTOR * rounding <= tolerance:
        why = within(tolerance).why
    return rounding, why


# The rounding of an array. Rules call these in this order: what is measured (`rounding_of_built`,
# `capped_rounding`; record/torch_reference_runs.py puts `Trace.rounding` together), what the array
# gets at least (`median_of_stage` of parameters, `growing_rounding` of losses, `rounding_floor` of
# rules), and `kernel_rounding`. Then `larger_bound` or `change_bound` takes the largest.


def rounding_of_built(
    names: NameMap, errors: Mapping[Key, float], name: str, reference: Arrays, built: np.ndarray
) -> float:
    """Return the relative rounding of the array `built`: what the port's array `name` is compared
    with.

    `names` builds it from the arrays of `reference`. These and their `errors` are under the
    reference's own names. The array may be a part of a larger one. It then gets the absolute error
    of the whole; of several arrays, the root of the sum of the squares of their errors.
    """
    sources = [source for source in names.sources(name) if source in errors and source in reference]
    error = math.hypot(*(errors[source] * or_one(norm(reference[source])) for source in sources))
    return error / or_one(norm(built))


def capped_rounding(
    names: NameMap, errors: Mapping[Key, float], name: str, rounding: float, tolerance: float
) -> float:
    """Return `rounding`, but no more than the larger one of the whole array's relative rounding and
    the tolerance.

    A part of small numbers must not get all of the whole's error: a fault would pass there. With a
    perfect whole, an error of up to 4 times the tolerance passes. Arrays that are only rounding are
    not capped (`Parameters._measured`).
    """
    whole = max((errors.get(source, 0.0) for source in names.sources(name)), default=0.0)
    return min(rounding, max(whole, tolerance))


def median_of_stage(roundings: Sequence[float]) -> float:
    """Return the median rounding of a stage, which each of its arrays gets at least.

    A small array may be close to float64 by luck.
    """
    return float(np.median([error for error in roundings if error <= MOST_IN_MEDIAN] or [0.0]))


def growing_rounding(errors: Mapping[Key, float], outputs: Mapping[Key, float]) -> dict[Key, float]:
    """Return the rounding of each update's loss, at least that of its outputs and of all losses
    before.

    Rounding grows from update to update.
    """
    each = (max(0.0, error, outputs.get(update, 0.0)) for update, error in errors.items())
    return dict(zip(errors, itertools.accumulate(each, max), strict=True))


def _up_to_ceiling(estimate: float) -> float:
    """Return an estimated rounding, but at most what leaves an array decided: an estimate may allow
    much, but is no reason to decide nothing, as a rounding above 1/16 would be.
    """
    return min(estimate, CEILING)


def kernel_rounding(error: float) -> float:
    """Return the rounding that lets an array pass which the port's kernels move by `error`."""
    return KERNEL_FACTOR * error / ROUNDING_FACTOR


# Ties: where rounding decides on which side of a step a number is.


def _larger_of_each(
    errors: Mapping[Any, float],
    others: Mapping[Any, float],
    factor: float = 1.0,
    missing: float = 0.0,
) -> dict[Any, float]:
    """Return the larger one of each error and `factor` times the other error of that array.

    `missing` is the other error of an array that `others` lacks.
    """
    return {name: max(error, factor * others.get(name, missing)) for name, error in errors.items()}


def rounding_with_relu_ties(measured: Rounding, flipped: Rounding) -> Rounding:
    """Return the larger rounding of each array: as measured, or with flipped ties.

    An array that is missing in `flipped` gets infinity: its change by ties is not known, so beyond
    its tolerance it is undecided.
    """
    return {
        stage: _larger_of_each(errors, flipped.get(stage, {}), missing=math.inf)
        for stage, errors in measured.items()
    }


def tie_width(outputs: Collection[Difference]) -> float:
    """Return the error of the port's layers, in units of the reference's own rounding.

    A ReLU's tie must be so many times as wide as in the reference. `outputs` are those of layers in
    training mode. A layer whose own rounding is above 1/16, as of one that overflows, is no measure.
    """
    measured = (output for output in outputs if output.rounding < CEILING)
    errors = [output.relative / max(output.rounding, HALF_A_UNIT) for output in measured]
    return max([1.0, *errors])


def rounding_with_step_ties(measured: Rounding, ties: Rounding, forward_differs: bool) -> Rounding:
    """Return the larger rounding of each array: as measured, or what allows the change by ties of
    functions.

    `_BY_ELEMENT` keep what is measured, and so do `_FROM_OUTPUTS` unless `forward_differs`: whether
    outputs in training mode do.
    """
    kept = _BY_ELEMENT if forward_differs else _BY_ELEMENT | _FROM_OUTPUTS
    factor = TIE_FACTOR / ROUNDING_FACTOR
    rounding = {}
    for stage, errors in measured.items():
        if stage.name in kept:
            rounding[stage] = errors
        else:
            rounding[stage] = _larger_of_each(errors, ties.get(stage, {}), factor)
    return rounding


# Changes by updates, whose arrays are rounded to float32 in each update.


class Sizes(NamedTuple):
    """Norms that decide how a change is compared: those of the numbers that are compared together."""

    change: float  # of the reference's change
    value: float  # of the numbers after the change
    unit: float  # of what rounding to their last places adds up to


def random_walk_norm(updates: int, size: float) -> float:
    """Return the norm of the rounding of weights of norm `size` after several updates.

    Each update rounds a weight by up to half a unit in the last place; these add up as in a random
    walk.
    """
    return float(updates) ** 0.5 * HALF_A_UNIT * size


def change_bound(
    sizes: Sizes,
    tolerance: float,
    value_tolerance: float | None,
    roundings: Mapping[str, float],
) -> Allowed:
    """Return the bound of a change: at least the last places of its numbers.

    The last places may be above 1/16, unlike other estimates (`_up_to_ceiling`), because
    `Changes._by_coarser_measure` compares what they leave undecided.

    `value_tolerance` is None if the array is trained. The tolerance of an untrained array's change
    is at most this fraction of its value; rounding may allow more.
    """
    size = or_one(sizes.change)
    if value_tolerance is not None:
        tolerance = min(tolerance, value_tolerance * sizes.value / size)
    unit = sizes.unit / size
    return larger_bound(tolerance, {**roundings, reasons.UNIT: unit})


# An optimizer alone, and a loss alone.


def random_walk_bound(
    tolerance: float, updates: int, weights: np.ndarray, change: np.ndarray
) -> Allowed:
    """Return the bound of a change by the optimizer alone, of which large numbers have their own."""

    def walk(numbers: np.ndarray) -> float:
        error = random_walk_norm(updates, norm(weights[numbers])) / or_one(norm(change[numbers]))
        return _up_to_ceiling(error)

    are_large = large_numbers(change)
    bound = larger_bound(tolerance, {reasons.RANDOM_WALK: walk(~are_large)})
    if not are_large.any():
        return bound
    return bound._replace(large=_largest(tolerance, {reasons.RANDOM_WALK: walk(are_large)}))


def cancellation_bound(tolerance: float, largest: float, loss: float, kernels: float) -> Allowed:
    """Return the bound of a loss alone of outputs up to `largest`, where the port's kernels move
    the loss by the relative error `kernels`.

    Where large numbers cancel, the small result keeps the rounding of the large ones.
    """
    error = CANCELLATION_UNIT * largest / or_one(abs(loss))
    roundings = {
        reasons.CANCELLATION: _up_to_ceiling(error),  # while kernels may make a loss undecided
        reasons.KERNELS: kernel_rounding(kernels),
    }
    return larger_bound(tolerance, roundings)
