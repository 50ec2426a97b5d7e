"""Measure how far MindSpore's inaccurate kernels move a port's outputs, losses and updates."""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from resnet_fn.config.wording import words_of
from resnet_fn.parity.record.alone import losses_alone
from resnet_fn.parity.record.passes import evaluated, trained
from resnet_fn.parity.record.side import Side
from resnet_fn.parity.trace.data import Rounding, Run
from resnet_fn.parity.trace.derived import MEASURED_ARRAYS
from resnet_fn.parity.trace.difference import relative_error
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.like import Like
from resnet_fn.parity.trace.stages import (
    EVAL_FORWARD,
    FIRST,
    LOSS,
    LOSS_ALONE,
    TRAIN_FORWARD,
    StageId,
    marked,
)

# Results that differ less are the same: then no state has moved them, and layers are not measured.
_SAME = 1e-6

Results = Mapping[StageId, Mapping[Any, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class KernelErrors:
    """How far the kernels of a port move what it computes, as relative errors."""

    rounding: Rounding = field(default_factory=dict)  # of outputs, losses and updates
    # of the output of each layer (`Layer.output_rounding`), by mode; {}: not measured
    layers: Mapping[str, Sequence[float]] = field(default_factory=dict)


def errors_with_masks(side: Side, layers: Sequence[Layer]) -> list[float]:
    """Return the error of the output of each of `layers`, a port's executions with dropout masks,
    by its kernels. Call this inside `Side.masked`.

    Returns [] if the port calls no inaccurate kernel, or with a note if it fails.
    """
    try:
        with side.exact_kernels() as calls:
            exact = side.layers("dropout")
        return _errors_of_layers(layers, layers, exact) if calls() else []
    except Exception as error:  # the bounds are only closer without it
        _add_note(side, error, " with dropout")
        return []


def _add_note(side: Side, error: Exception, where: str = "") -> None:
    side.notes.append(f"the error of kernels is not measured{where} ({words_of(error)})")


def kernel_errors(
    side: Side,
    run: Run,
    like: Like | None,
    layers: Mapping[str, Sequence[Layer]],
    masks: Mapping[str, Sequence[np.ndarray]],
    of_masked_layers: Sequence[float],
) -> KernelErrors:
    """Return the relative errors of a port's outputs, losses, updates and layers by its kernels.

    The runs do not move the net. There are no errors if the port calls no such kernel, or if results
    change from run to run; what fails is left out, with a note. `of_masked_layers` are the errors of
    layers with dropout `masks`, or [].
    """
    try:
        with side.masked({}):  # after the updates, the port would drop again
            errors = _of_passes(side, run, like)
            if errors is None:
                return KernelErrors()
            if max(_largest(errors), *of_masked_layers, 0.0) <= _SAME:
                return KernelErrors(errors)
            of_layers = {mode: _of_layers(side, mode, layers[mode]) for mode in ("eval", "train")}
        if of_masked_layers:
            of_layers["dropout"] = [*of_masked_layers]
        return KernelErrors({**_of_updates(side, like, masks), **errors}, of_layers)
    except Exception as error:  # the bounds are only closer without it
        _add_note(side, error)
        return KernelErrors()


def _of_passes(side: Side, run: Run, like: Like | None) -> Rounding | None:
    """Return the errors of outputs and losses on all batches and with random numbers for constant
    arrays, of a port whose dropout is off, or None as `_of_first_batch` does.
    """
    errors = _of_first_batch(side, run, like)
    if errors is None:
        return None
    for batch in range(FIRST + 1, FIRST + len(side.plan.batches)):
        errors |= _of_batch(side, batch)
    if like and like.drawn:
        try:
            with side.holding(like.drawn):
                errors |= marked(_of_batch(side, FIRST), drawn=True)
        except Exception as error:
            _add_note(side, error, " with random numbers for constants")
    return errors


def _of_batch(side: Side, batch: int) -> Rounding:
    with side.exact_kernels():
        exact = _results(side, batch)
    return _errors(_results(side, batch), exact)


def _of_first_batch(side: Side, run: Run, like: Like | None) -> Rounding | None:
    """Return the errors of outputs and losses on the first batch, or None if the port calls no
    inaccurate kernel, or if results change from run to run.
    """

    def of_losses() -> Results:
        alone = {} if side.worker_count > 1 else losses_alone(side, run, like).losses
        return {LOSS_ALONE: {case: np.asarray(loss) for case, loss in alone.items()}}

    def results() -> Results:
        return {**_results(side), **of_losses()}

    with side.exact_kernels() as calls:
        exact_results = _results(side)
    with side.exact_kernels(limits=True) as calls_of_losses:
        exact_losses = of_losses()
    if not (calls() or calls_of_losses()):
        return None
    computed = results()
    again = results()
    if _largest(_errors(again, computed)) > _SAME:
        return None  # a state moves the results
    return _errors(computed, {**exact_results, **exact_losses})


def _of_layers(side: Side, mode: str, layers: Sequence[Layer]) -> list[float]:
    with side.exact_kernels():
        exact = side.layers(mode)
    return _errors_of_layers(layers, side.layers(mode), exact)


def _errors_of_layers(
    layers: Sequence[Layer], computed_layers: Sequence[Layer], exact: Sequence[Layer]
) -> list[float]:
    """Return the error of the output of each of `layers`, as before where there is no output."""
    errors = []
    for layer, computed, right in zip(layers, computed_layers, exact, strict=True):
        error = layer.output_rounding
        if computed.output is not None and right.output is not None:
            error = relative_error(computed.output, right.output)
        errors.append(error)
    return errors


def _of_updates(
    side: Side, like: Like | None, masks: Mapping[str, Sequence[np.ndarray]]
) -> Rounding:
    """Return the errors of gradients, and of what updates with them compute."""
    if side.worker_count > 1:  # all workers would have to make these updates
        return {}
    for used in (masks, {}) if masks else ({},):
        where = " in updates with dropout" if used else " in updates"
        try:
            runs = side.updates_by_kernels(like, used)
            return _errors_of_runs(*runs) if runs else {}
        except Exception as error:  # the bounds are only closer without it
            _add_note(side, error, where)
    return {}


def _errors_of_runs(computed: Run, exact: Run) -> Rounding:
    errors: Rounding = {}
    batches = zip([computed, *computed.later], [exact, *exact.later], strict=True)
    for batch, runs in enumerate(batches, FIRST):
        errors |= marked(_errors(*map(_arrays_of, runs)), batch=batch)
    for runs in zip(computed.dropped, exact.dropped, strict=True):
        errors |= marked(_errors(*map(_arrays_of, runs)), masked=True)
    return errors


def _arrays_of(run: Run) -> Results:
    return {stage: of_run(run) for stage, of_run in MEASURED_ARRAYS.items()}


def _results(side: Side, batch: int = FIRST) -> Results:
    """Return outputs in both modes and the loss, of one batch with the weights as they are."""
    outputs = trained(side, batch)
    loss = outputs.pop(LOSS.name)
    results = {
        EVAL_FORWARD: evaluated(side, batch),
        TRAIN_FORWARD: outputs,
        LOSS: {LOSS.name: loss},
    }
    return marked(results, batch=batch)


def _largest(errors: Rounding) -> float:
    return max(itertools.chain(*(stage.values() for stage in errors.values())), default=0.0)


def _errors(computed: Results, exact: Results) -> Rounding:
    """Return the finite relative errors of the arrays that both have, by stage."""
    errors: Rounding = {}
    for stage, arrays in computed.items():
        of_stage = {
            name: relative_error(array, exact[stage][name])
            for name, array in arrays.items()
            if name in exact[stage]
        }
        errors[stage] = {name: error for name, error in of_stage.items() if math.isfinite(error)}
    return errors
