"""Measure the rounding of the reference's arrays: against float64, and under noise."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from resnet_fn.parity.trace.data import Rounding, Run
from resnet_fn.parity.trace.derived import MEASURED
from resnet_fn.parity.trace.difference import ROUNDING_FACTOR, norm, relative_error
from resnet_fn.parity.trace.limits import MOST_BY_NOISE, ONLY_ROUNDING, SPREADS
from resnet_fn.parity.trace.stages import (
    ALL_GRADIENTS,
    AVERAGE,
    CHANGED_BUFFERS,
    GRADIENTS,
    LAST,
)
from resnet_fn.parity.trace.tree import Arrays


def rounding(run: Run, exact: Run) -> Rounding:
    """Return the relative errors of a run's arrays against the same run in float64, by stage."""
    return rounding_of_parts(run, iter([exact, *exact.later, *exact.dropped]))


def rounding_of_parts(run: Run, exact: Iterator[Run]) -> Rounding:
    """Return the relative errors of a run's arrays, by stage. Of the exact run, the parts are given
    (`record_parts`), of which one at a time is in memory.
    """
    roundings = _errors(run, next(exact))
    for index, later in enumerate(run.later):
        errors = _errors(later, next(exact))
        roundings |= {replace(stage, batch=index + 2): one for stage, one in errors.items()}
    for dropped in run.dropped:
        errors = _errors(dropped, next(exact))
        roundings |= {replace(stage, masked=True): one for stage, one in errors.items()}
    return roundings


def _errors(run: Run, exact: Run) -> Rounding:
    roundings: Rounding = {}
    for stage, values in MEASURED.items():
        errors, exactly = roundings.setdefault(stage, {}), values(exact)
        for name, value in values(run).items():
            error = relative_error(value, exactly[name])
            errors[name] = 0.0 if math.isnan(error) else error
    roundings[ALL_GRADIENTS] = {"": _error_of_all(roundings[GRADIENTS], exact.gradients)}
    return roundings


def _error_of_all(errors: Mapping[Any, float], exact: Arrays) -> float:
    """Return the error of all arrays as one, which would take much memory."""
    sizes = {name: norm(exact[name]) for name in errors}
    sizes = {name: size for name, size in sizes.items() if math.isfinite(size)}
    whole = math.hypot(*sizes.values())
    apart = math.hypot(*(errors[name] * (size or 1.0) for name, size in sizes.items()))
    return apart / (whole or 1.0)


def with_noise(measured: Rounding, noisy: Sequence[Rounding]) -> Rounding:
    """Return each array's rounding: the error in `measured` or, if larger, an estimate from the
    changes in `noisy`.

    `noisy` has relative changes under noise of one unit in the last place: those of the first
    batch's arrays, which count for every batch, and those of `drift`.
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


def drift(noisy: Run, run: Run, measured: Rounding, parameters: Collection[str]) -> Rounding:
    """Return relative changes by noise after the last update: of untrained arrays, of outputs, and
    of weights whose gradients have a rounding of at least `ONLY_ROUNDING`.
    """
    # `parameters` has the trained ones; the rest are statistics and constant arrays
    errors, statistics = rounding(noisy, run), noisy.after[-1].keys() - parameters
    # Adam divides by the gradient, so a weight drifts even if the gradient is only rounding.
    drifting = statistics | {
        name for name, error in measured[GRADIENTS].items() if error >= ONLY_ROUNDING
    }
    moved = {
        stage: {name: one for name, one in errors[stage].items() if name in drifting}
        for stage in (LAST, AVERAGE)
    }
    return {**moved, CHANGED_BUFFERS: errors[CHANGED_BUFFERS]}
