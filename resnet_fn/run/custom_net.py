"""These functions check the state of the net that a caller passes to `fit`: before training,
whether checkpoints can contain it, and in the first update, what the forward pass changes.
"""

import collections
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from mindspore import Tensor, nn

from resnet_fn.checkpoint.tensor_file import bad_values, check_dtype
from resnet_fn.config.printing import warn
from resnet_fn.config.wording import first_few
from resnet_fn.data.agreement import require_alike
from resnet_fn.models.untrained import saved_state, untrained_state
from resnet_fn.runtime.workers import Workers
from resnet_fn.update.step import StepResult, TrainStep

_OF_EVERY_CELL = frozenset(vars(nn.Cell()))  # MindSpore's own attributes
Digests = dict[str, str]


def check_saveable(net: nn.Cell) -> None:
    """Raise ValueError if a checkpoint cannot contain a Parameter or a buffer of `net`, because of
    its name, its dtype, NaN or infinity.

    Infinity is allowed in Parameters that are not trained and in buffers, as in an attention mask.
    """
    state = saved_state(net)
    counts = collections.Counter(variable.name for variable in state)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise ValueError(
            f"net: several Parameters or buffers have the name {first_few(twice)}; "
            "give each its own name"
        )
    untrained = {variable.name for variable in untrained_state(net)}
    bad = []
    for variable in state:
        array = variable.numpy()
        try:
            check_dtype(variable.name, array.dtype)
        except ValueError as error:
            raise ValueError(f"net: {error}") from None
        if bad_values(array, variable.name in untrained).any():
            bad.append(variable.name)
    if bad:
        raise ValueError(
            f"net: {first_few(bad)} contains NaN or infinity; "
            "give finite values (only what is not trained may contain infinity)"
        )


def watch_first_update(
    step: TrainStep, net: nn.Cell, workers: Workers, compiled: bool
) -> TrainStep:
    """Return a function that calls `step`, and checks what the forward pass of `net` changes in the
    first update that is applied.

    This call raises ValueError on all workers if a Parameter that is not trained, or a buffer,
    differs between workers after the update. The call prints a warning on rank 0 if the update
    changes attributes of cells, which a checkpoint does not contain, or buffers that compiled
    functions (`compiled`) read as constants.
    """
    is_checked = False

    def watched(*arguments: Any) -> StepResult:
        nonlocal is_checked
        if is_checked:
            return step(*arguments)
        before = _digests(net)
        others = _attributes(net)
        result = step(*arguments)
        # if it is not applied, on all workers alike, the caller names the sample or the numbers
        if result.scaler.numpy()[2] or result.report.workers_without_samples.numpy():
            return result
        after = _digests(net)
        is_checked = True
        require_alike(
            {f"{name} after the first update": digest for name, digest in after.items()},
            workers,
            "the forward pass changes it by the samples of one worker; sum over all workers with "
            "ops.AllReduce, use nn.BatchNorm2d, or train on one worker",
        )
        if workers.is_main:
            _warn_of_changes(
                net, _changed(before, after), _changed(others, _attributes(net)), compiled
            )
        return result

    return watched


def _warn_of_changes(
    net: nn.Cell, changed: Sequence[str], attributes: Sequence[str], compiled: bool
) -> None:
    saved = {variable.name for variable in saved_state(net)}
    buffers = [name for name, _ in net.named_buffers() if name in changed]
    lost = [*attributes, *(name for name in buffers if name not in saved)]
    fix = "make each a Parameter with requires_grad=False"
    if compiled and buffers:
        why = "compiled functions read buffers as constants"
        warn(f"net: buffers {first_few(buffers)} change, but {why}; {fix}, or give mode='pynative'")
    if lost:
        why = "but no checkpoint contains them, so a resumed run may differ"
        warn(f"net: attributes {first_few(lost)} change in an update, {why}; {fix}")


def _changed(before: Digests, after: Digests) -> list[str]:
    """Return the names in both dicts whose digests differ."""
    return [name for name in before if after.get(name, before[name]) != before[name]]


def _digests(net: nn.Cell) -> Digests:
    return {variable.name: _digest(variable.numpy()) for variable in untrained_state(net)}


def _attributes(net: nn.Cell) -> Digests:
    """Return digests of the tensors, arrays and numbers that are attributes of the cells."""
    return {
        f"{path}.{name}" if path else name: _digest(
            value.numpy() if isinstance(value, Tensor) else np.asarray(value)
        )
        for path, cell in net.cells_and_names()
        for name, value in vars(cell).items()
        if name not in _OF_EVERY_CELL and isinstance(value, Tensor | np.ndarray | int | float)
    }


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()[:12]
