"""Measure how far MindSpore's inaccurate kernels move a port's outputs, losses and updates."""

import itertools
import math
from collections.abc import Mapping, Sequence
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


def kernel_errors(
    side: Side, run: Run, like: Like | None, layers: Mapping[str, Sequence[Layer]]
) -> Rounding:
    """Return the relative errors of a port's outputs and losses by its kernels, and set those of
    its layers: of a port, `Layer.output_rounding` is the error by kernels.

    The runs are not compiled, have no dropout, and do not move the net. The result is {} for a
    reference, if the port calls no such kernel, if results change from run to run, or if a run
    fails, with a note.
    """
    if side.is_reference:
        return {}
    try:
        with side.masked({}):  # after the updates, the port would drop again
            return _measured(side, run, like, layers)
    except Exception as error:  # the bounds are only closer without it
        side.notes.append(f"the error of kernels is not measured ({words_of(error)})")
        return {}


def _measured(
    side: Side, run: Run, like: Like | None, layers: Mapping[str, Sequence[Layer]]
) -> Rounding:
    def of_losses() -> Results:
        alone = {} if side.worker_count > 1 else losses_alone(side, run, like).losses
        return {LOSS_ALONE: {case: np.asarray(loss) for case, loss in alone.items()}}

    def results() -> Results:
        return {**_results(side), **of_losses()}

    with side.exact_kernels() as calls:
        exact = _results(side)
    with side.exact_kernels(limits=True) as calls_of_losses:
        exact = {**exact, **of_losses()}
    if not (calls() or calls_of_losses()):
        return {}
    computed = results()
    if _largest(_errors(results(), computed)) > _SAME:
        return {}  # a state moves the results
    errors = _errors(computed, exact)
    for batch in range(FIRST + 1, FIRST + len(side.plan.batches)):
        with side.exact_kernels():
            exact = _results(side, batch)
        errors |= _errors(_results(side, batch), exact)
    if _largest(errors) > _SAME:
        for mode in ("eval", "train"):
            _set_errors(side, mode, layers[mode])
        errors = {**_of_updates(side, like), **errors}
    return errors


def _of_updates(side: Side, like: Like | None) -> Rounding:
    """Return the errors of gradients, and of what updates with them compute."""
    if side.worker_count > 1:  # all workers would have to make these updates
        return {}
    try:
        runs = side.updates_by_kernels(like)
        return _errors_of_runs(*runs) if runs else {}
    except Exception as error:  # the bounds are only closer without it
        side.notes.append(f"the error of kernels in updates is not measured ({words_of(error)})")
        return {}


def _errors_of_runs(computed: Run, exact: Run) -> Rounding:
    errors: Rounding = {}
    batches = zip([computed, *computed.later], [exact, *exact.later], strict=True)
    for batch, runs in enumerate(batches, FIRST):
        of_runs = [{key: of(run) for key, of in MEASURED_ARRAYS.items()} for run in runs]
        errors |= _errors(*(marked(arrays, batch=batch) for arrays in of_runs))
    return errors


def _set_errors(side: Side, mode: str, layers: Sequence[Layer]) -> None:
    with side.exact_kernels():
        exact = side.layers(mode)
    for layer, one, other in zip(layers, side.layers(mode), exact, strict=True):
        if one.output is not None and other.output is not None:
            layer.output_rounding = relative_error(one.output, other.output)


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
    return max(itertools.chain(*(one.values() for one in errors.values())), default=0.0)


def _errors(computed: Results, exact: Results) -> Rounding:
    """Return the finite relative errors of the arrays that both have, by stage."""
    errors: Rounding = {}
    for stage, arrays in computed.items():
        both = {name: one for name, one in arrays.items() if name in exact[stage]}
        of_stage = {name: relative_error(one, exact[stage][name]) for name, one in both.items()}
        errors[stage] = {name: one for name, one in of_stage.items() if math.isfinite(one)}
    return errors
