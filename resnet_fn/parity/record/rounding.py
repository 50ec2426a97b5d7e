"""Measure the rounding of the reference's arrays: against float64, and under noise."""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from resnet_fn.parity.trace.data import Changing, Rounding, Run
from resnet_fn.parity.trace.derived import MEASURED
from resnet_fn.parity.trace.difference import (
    ROUNDING_FACTOR,
    are_integers,
    in_range,
    norm,
    relative_error,
)
from resnet_fn.parity.trace.limits import MOST_BY_NOISE, ONLY_ROUNDING, SPREADS
from resnet_fn.parity.trace.stages import ALL_GRADIENTS, AVERAGE, CHANGED_BUFFERS, GRADIENTS, LAST
from resnet_fn.parity.trace.tree import Arrays


def rounding(run: Run, exact: Run) -> Rounding:
    """Return the relative errors of a run's arrays against the same run in float64, by stage."""
    roundings: Rounding = {}
    for stage, values in MEASURED.items():
        errors, exactly = roundings.setdefault(stage, {}), values(exact)
        for name, value in values(run).items():
            error = _error(value, exactly[name]) if name in exactly else math.inf
            errors[name] = 0.0 if math.isnan(error) else error
    roundings[ALL_GRADIENTS] = {"": _error_of_all(roundings[GRADIENTS], exact.gradients)}
    for index, pair in enumerate(zip(run.later, exact.later, strict=True)):
        roundings |= {
            dataclasses.replace(stage, batch=index + 2): errors
            for stage, errors in rounding(*pair).items()
        }
    for pair in zip(run.dropped, exact.dropped, strict=True):
        roundings |= {
            dataclasses.replace(stage, masked=True): errors
            for stage, errors in rounding(*pair).items()
        }
    for pair in zip(run.drawn, exact.drawn, strict=True):
        roundings |= {
            dataclasses.replace(stage, drawn=True): errors
            for stage, errors in rounding(*pair).items()
        }
    return roundings


def _error(value: Any, exact: Any) -> float:
    """Return the relative error, in which infinity is a number beyond float32's range."""
    error = relative_error(value, exact)
    if math.isinf(error) and np.shape(value) == np.shape(exact):
        return relative_error(in_range(value, True), in_range(exact, True))
    return error


def _error_of_all(errors: Mapping[Any, float], exact: Arrays) -> float:
    """Return the error of all gradients as one array, which would take much memory."""
    sizes, apart = [], []
    for name, error in errors.items():
        size = norm(exact[name]) if name in exact else math.nan
        if not math.isfinite(size):
            continue
        sizes.append(size)
        relative_to = size or 1.0
        apart.append(error * relative_to)
    whole = math.hypot(*sizes)
    return math.hypot(*apart) / (whole or 1.0)


def changing(run: Run, others: Sequence[Run]) -> Changing:
    """Return masks of the elements of integers and booleans that differ in any of several runs of
    the same task, by stage and name.

    An array that has another size in one of them changes everywhere.
    """
    masks: Changing = {}
    for stage, values in MEASURED.items():
        for name, value in values(run).items():
            if not are_integers(value):
                continue
            mask = np.zeros(value.shape, bool)
            for other in (values(one).get(name) for one in others):
                if other is not None:  # a run of one batch has no later stages
                    mask |= value != other if other.shape == value.shape else True
            if mask.any():
                masks.setdefault(stage, {})[name] = mask
    for index, later in enumerate(run.later):
        of_batch = [one.later[index] for one in others if one.later]
        masks |= {
            dataclasses.replace(stage, batch=index + 2): one
            for stage, one in changing(later, of_batch).items()
        }
    for index, dropped in enumerate(run.dropped):
        with_masks = [one.dropped[index] for one in others if one.dropped]
        masks |= {
            dataclasses.replace(stage, masked=True): one
            for stage, one in changing(dropped, with_masks).items()
        }
    return masks


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
