"""Measure the rounding of the reference's arrays: against float64, and under noise."""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from resnet_fn.parity.trace.data import Changing, Rounding, Run, further_passes
from resnet_fn.parity.trace.derived import MEASURED_ARRAYS
from resnet_fn.parity.trace.difference import (
    ROUNDING_FACTOR,
    are_integers,
    errors_of_parts,
    in_range,
    norm,
)
from resnet_fn.parity.trace.limits import CHAOTIC_ERROR, MOST_BY_NOISE, ONLY_ROUNDING, SPREADS
from resnet_fn.parity.trace.plan import OptimizerPlan
from resnet_fn.parity.trace.stages import (
    ALL_GRADIENTS,
    AVERAGE,
    CHANGE,
    CHANGED_BUFFERS,
    CLIPPED,
    GRADIENTS,
    LAST,
    TRAJECTORY,
    Key,
    StageId,
    marked,
)
from resnet_fn.parity.trace.tree import Arrays


def rounding(
    run: Run, exact: Run, like: Run | None = None, *, stages: Collection[StageId] = MEASURED_ARRAYS
) -> Rounding:
    """Return the relative errors of a run's arrays against the same run in float64, by stage, and
    those of further passes.

    The arrays of `like`, which are `run`'s by default, decide which numbers are large: their errors
    are those of a stage of their own. An array of another shape has an infinite error. `stages` are
    the stages of `MEASURED_ARRAYS` that are wanted.
    """
    roundings: Rounding = {}
    like = run if like is None else like
    for stage in stages:
        values = MEASURED_ARRAYS[stage]
        exactly, compared = values(exact), values(like)
        errors, of_large = dict[Key, float](), dict[Key, float]()
        for name, value in values(run).items():
            error, large = math.inf, None  # the other run has no such output
            if name in exactly:
                alike = value if like is run else compared.get(name, value)
                error, large = _errors(value, exactly[name], alike)
            errors[name] = 0.0 if math.isnan(error) else error
            if large is not None:
                of_large[name] = large
        roundings[stage] = errors
        if of_large:
            roundings[dataclasses.replace(stage, large=True)] = of_large
    if GRADIENTS in stages:
        whole = _error_of_all(roundings[GRADIENTS], exact.gradients)
        roundings[ALL_GRADIENTS] = {"": whole}
    for marks, passes in further_passes(run, exact, like):
        of_run, of_exact, of_like = passes
        roundings |= marked(rounding(of_run, of_exact, of_like, stages=stages), **marks)
    return roundings


def largest_error(value: Any, exact: Any) -> float:
    """Return the larger one of both parts' errors, in which infinity is a number beyond float32's
    range.
    """
    usual, large = _errors(value, exact, value)
    return usual if large is None else max(usual, large)


def _errors(value: Any, exact: Any, like: Any) -> tuple[float, float | None]:
    """Return the errors of both parts, in which infinity is a number beyond float32's range."""
    errors = errors_of_parts(value, exact, like)
    if math.isinf(errors[0]) and np.shape(value) == np.shape(exact):
        return errors_of_parts(*(in_range(array, True) for array in (value, exact, like)))
    return errors


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
    for stage, values in MEASURED_ARRAYS.items():
        for name, value in values(run).items():
            if not are_integers(value):
                continue
            mask = np.zeros(value.shape, bool)
            for other in (values(other_run).get(name) for other_run in others):
                if other is not None:  # a run of one batch has no later stages
                    mask |= value != other if other.shape == value.shape else True
            if mask.any():
                masks.setdefault(stage, {})[name] = mask
    for index, later in enumerate(run.later):
        of_batch = [other_run.later[index] for other_run in others if other_run.later]
        masks |= marked(changing(later, of_batch), batch=index + 2)
    for index, dropped in enumerate(run.dropped):
        with_masks = [other_run.dropped[index] for other_run in others if other_run.dropped]
        masks |= marked(changing(dropped, with_masks), masked=True)
    for index, with_constants in enumerate(run.drawn):
        with_drawn = [other_run.drawn[index] for other_run in others if other_run.drawn]
        masks |= marked(changing(with_constants, with_drawn), drawn=True)
    return masks


def without_scaled(changes: Rounding, optimizer: OptimizerPlan) -> Rounding:
    """Return changes by noise without those of weights, if the optimizer scales gradients that are
    only rounding to full size.

    The comparison leaves such elements out one by one (docs/parity.md#adam), so that the changes of
    whole arrays would be too large.
    """
    if not optimizer.is_adaptive:
        return changes
    return {stage: errors for stage, errors in changes.items() if stage.name != CHANGE.name}


def is_chaotic(measured: Rounding, run: Run) -> bool:
    """Return whether float32 and float64 are clearly apart after the updates (`CHAOTIC_ERROR`).

    Weights whose gradients are only rounding do not count: they drift in any training.
    """
    if max(measured.get(TRAJECTORY, {}).values(), default=0.0) > CHAOTIC_ERROR:
        return True
    drifting, changes = _only_rounding(measured), MEASURED_ARRAYS[LAST](run)
    for name, error in measured.get(LAST, {}).items():
        if name in drifting or name not in changes:
            continue
        if error * norm(changes[name]) > CHAOTIC_ERROR * norm(run.after[-1][name]):
            return True
    return False


def without_updates(measured: Rounding) -> Rounding:
    """Return the rounding without that of the weights after each update."""
    return {stage: errors for stage, errors in measured.items() if not stage.update}


def of_update(update: int, run: Run, exact: Run, like: Run | None = None) -> Rounding:
    """Return the relative errors of the weights after one update (`rounding`)."""

    def until(run: Run) -> Run:
        return Run({}, run.start, [], after=run.after[:update])

    compared = like and until(like)
    measured = rounding(until(run), until(exact), compared, stages=(LAST,))
    return marked(measured, update=update)


def _only_rounding(measured: Rounding) -> set[Key]:
    """Return the parameters whose gradients have a rounding of at least `ONLY_ROUNDING`."""
    return {name for name, error in measured[GRADIENTS].items() if error >= ONLY_ROUNDING}


# What is only rounding with a gradient: under SGD, the change, too. Under an adaptive optimizer,
# noise gives no rounding to changes (`without_scaled`).
_OF_GRADIENTS = {GRADIENTS.name, CLIPPED.name, CHANGE.name}


def with_noise(
    measured: Rounding, noisy: Sequence[Rounding], chaotic: Sequence[Rounding] = ()
) -> Rounding:
    """Return each array's rounding: the error in `measured` or, if larger, an estimate from the
    changes in `noisy`.

    `noisy` has relative changes under noise of one unit in the last place: those of the first
    batch's arrays, which count for every batch, and those of `drift`. For the changes in `chaotic`
    there is no largest estimate, because such a training has no closer answer in float32.
    """
    grown = {}
    for stage, errors in measured.items():
        first = stage.of_first_batch
        changes = [moved.get(first, {}) for moved in noisy]
        spreads = {
            name: SPREADS * max((change.get(name, 0.0) for change in changes), default=0.0)
            for name in errors
        }
        least = {
            name: min(spread, MOST_BY_NOISE / ROUNDING_FACTOR) for name, spread in spreads.items()
        }
        if first.name in _OF_GRADIENTS:
            least |= {name: spread for name, spread in spreads.items() if spread >= ONLY_ROUNDING}
        of_chaos = [moved.get(stage, {}) for moved in chaotic]
        grown[stage] = {
            name: max(error, least[name], *(SPREADS * change.get(name, 0.0) for change in of_chaos))
            for name, error in errors.items()
        }
    return grown


def drift(
    noisy: Run,
    run: Run,
    measured: Rounding,
    parameters: Collection[str],
    *,
    chaotic: bool,
    of_updates: Rounding,
) -> Rounding:
    """Return relative changes by noise after the last update: of untrained arrays, of outputs, and
    of weights whose gradients have a rounding of at least `ONLY_ROUNDING`; of all weights and of
    losses if the training is chaotic.

    `of_updates` has the changes after earlier updates (`Drifting`).
    """
    # `parameters` has the trained ones; the rest are statistics and constant arrays
    errors = rounding(noisy, run, run, stages=(TRAJECTORY, LAST, AVERAGE, CHANGED_BUFFERS))
    errors |= of_updates
    # Adam divides by the gradient, so a weight drifts even if the gradient is only rounding.
    drifting = {*(noisy.after[-1].keys() - parameters), *_only_rounding(measured)}
    moved = {
        stage: {name: error for name, error in changes.items() if chaotic or name in drifting}
        for stage, changes in errors.items()
        if stage.name in (LAST.name, AVERAGE.name)
    }
    if chaotic:
        moved[TRAJECTORY] = errors[TRAJECTORY]
    return {**moved, CHANGED_BUFFERS: errors[CHANGED_BUFFERS]}
