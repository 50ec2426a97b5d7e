"""Measure the rounding of the reference's arrays: against float64, and under noise."""

import dataclasses
import math
from collections.abc import Collection, Sequence

from resnet_fn.parity.trace.data import Rounding, Run
from resnet_fn.parity.trace.derived import MEASURED
from resnet_fn.parity.trace.difference import ROUNDING_FACTOR, relative_error
from resnet_fn.parity.trace.limits import MOST_BY_NOISE, ONLY_ROUNDING, SPREADS
from resnet_fn.parity.trace.stages import AVERAGE, CHANGED_BUFFERS, GRADIENTS, LAST


def rounding(trace: Run, exact: Run) -> Rounding:
    """Return the relative errors of a trace's arrays against the same net in float64."""
    roundings: Rounding = {}
    for stage, values in MEASURED.items():
        errors, exactly = roundings.setdefault(stage, {}), values(exact)
        for name, value in values(trace).items():
            error = relative_error(value, exactly[name])
            errors[name] = 0.0 if math.isnan(error) else error
    for index, pair in enumerate(zip(trace.later, exact.later, strict=True)):
        roundings |= {
            dataclasses.replace(stage, batch=index + 2): errors
            for stage, errors in rounding(*pair).items()
        }
    for pair in zip(trace.dropped, exact.dropped, strict=True):
        roundings |= {
            dataclasses.replace(stage, masked=True): errors
            for stage, errors in rounding(*pair).items()
        }
    return roundings


def with_noise(measured: Rounding, noisy: Sequence[Rounding]) -> Rounding:
    """Return each array's rounding: the error in `measured` or, if larger, an estimate from the
    changes in `noisy`.

    `noisy` has the relative changes of the first batch's arrays under noise of one unit in the last
    place.
    """
    grown = {}
    for stage, errors in measured.items():
        first = stage.of_first_batch
        changes = [one.get(first, {}) for one in noisy]
        spreads = {
            name: SPREADS * max((one.get(name, 0.0) for one in changes), default=0.0)
            for name in errors
        }
        least = {
            name: min(spread, MOST_BY_NOISE / ROUNDING_FACTOR) for name, spread in spreads.items()
        }
        if first == GRADIENTS:  # such a gradient is only rounding
            least |= {name: spread for name, spread in spreads.items() if spread >= ONLY_ROUNDING}
        grown[stage] = {name: max(error, least[name]) for name, error in errors.items()}
    return grown


def drift(noisy: Run, trace: Run, measured: Rounding, parameters: Collection[str]) -> Rounding:
    """Return relative changes by noise in statistics, last outputs, and weights whose gradients are
    only rounding.
    """
    # all names of trained ones
    errors, statistics = rounding(noisy, trace), noisy.after[-1].keys() - parameters
    # Adam divides by the gradient, so a weight drifts even if the gradient is only rounding.
    drifting = statistics | {
        name for name, error in measured[GRADIENTS].items() if error >= ONLY_ROUNDING
    }
    moved = {
        stage: {name: one for name, one in errors[stage].items() if name in drifting}
        for stage in (LAST, AVERAGE)
    }
    return {**moved, CHANGED_BUFFERS: errors[CHANGED_BUFFERS]}
