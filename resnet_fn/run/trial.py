"""These functions check the net and the loss that a caller passes to `fit`, by a trial call."""

import functools
from typing import Any

import mindspore
from mindspore import Tensor, nn

from resnet_fn.config.wording import first_line, kind_of
from resnet_fn.data.dataset import Arrays
from resnet_fn.data.sources.arrays import are_classes, describe
from resnet_fn.runtime import process
from resnet_fn.update.loss import Loss

_NO_CLASSES = 'if the targets are no classes, give targets.astype("float32") and a loss of your own'
_PORT = "docs/migrating.md describes how to port one"


def check_net(net: Any) -> None:
    """Raise ValueError if `net` is not a net of MindSpore with parameters to train."""
    if isinstance(net, type):
        name = net.__name__
        raise ValueError(f"net: {name} is a class; give a net that it makes, {name}(…)")
    if not isinstance(net, nn.Cell):
        raise ValueError(
            f"net: {kind_of(net)} is not an nn.Cell of MindSpore; give an nn.Cell ({_PORT})"
        )
    if not net.trainable_params():
        raise ValueError(
            f"net: {type(net).__name__} has no parameters to train; give an nn.Cell with parameters"
        )


def check_loss(loss: Any) -> None:
    """Raise ValueError if `loss` is neither a loss's name nor a function of MindSpore tensors."""
    if isinstance(loss, str):
        return
    if isinstance(loss, type):
        name = loss.__name__
        raise ValueError(f"loss: {name} is a class; give a loss that it makes, {name}()")
    if kind_of(loss).endswith("of torch"):
        raise ValueError(
            f"loss: {kind_of(loss)} cannot read MindSpore's tensors; "
            "give 'cross_entropy', or a function such as MindSpore's nn.CrossEntropyLoss()"
        )
    if not callable(loss):
        raise ValueError(
            f"loss: {loss!r} is neither a name nor a function; give 'cross_entropy' or a function"
        )
    if isinstance(loss, nn.Cell) and loss.trainable_params():
        raise ValueError(
            f"loss: {type(loss).__name__} has parameters to train, but fit trains only the net; "
            "make them part of the net, or set requires_grad = False"
        )


def in_float32(loss: Loss) -> Loss:
    """Return `loss` as a function that MindSpore compiles, whose result is a float32 scalar."""
    if isinstance(loss, functools.partial):
        function = loss.func
        first = loss.args
        named = loss.keywords

        def of_partial(outputs: Tensor, targets: Tensor) -> Tensor:
            return function(*first, outputs, targets, **named).astype(mindspore.float32)

        return of_partial

    def of_function(outputs: Tensor, targets: Tensor) -> Tensor:
        return loss(outputs, targets).astype(mindspore.float32)

    return of_function


@process.ending_mixed_precision()
def try_call(net: nn.Cell, loss: Loss | None, split: Arrays, compiled: bool) -> tuple[str, ...]:
    """Call the net and the loss with two samples.

    Returns the class names, or () if the targets are no classes. `compiled`: not mode="pynative".
    """
    inputs = Tensor(split.images[:2])
    targets = Tensor(split.labels[:2])
    net.set_train(False)
    tried = "net"
    try:
        outputs = net(inputs)
        tried = "loss"
        value = None if loss is None else loss(outputs, targets)
    except Exception as error:
        of_loss = _NO_CLASSES if are_classes(split.labels) else ""
        fix = _fix_of_net(split) if tried == "net" else of_loss
        fault = (
            f"{tried}: the call fails with inputs {describe(inputs)} and targets "
            f"{describe(targets)}: {first_line(error)}"
        )
        raise ValueError("; ".join(filter(None, (fault, fix)))) from error
    if loss is not None:
        if getattr(value, "shape", None) != ():
            raise ValueError(
                f"loss: the result is {_shape(value)}, but it must be a scalar, the mean over the "
                "samples"
            )
        if compiled:
            _check_lambda(loss, outputs, targets)
    if not are_classes(split.labels):
        return ()
    shape: tuple[int, ...] = outputs.shape if isinstance(outputs, Tensor) else ()
    if len(shape) != 2 or shape[0] != len(inputs) or shape[1] < 2:
        raise ValueError(
            f"net: the output is {_shape(outputs)}, but it must be a logit for each class, "
            f"[{len(inputs)}, classes]; {_NO_CLASSES}"
        )
    return tuple(map(str, range(shape[1])))


def _fix_of_net(split: Arrays) -> str:
    """Return what usually makes a net fail with these inputs, or ""."""
    shape = split.images.shape
    if split.images.dtype.kind in "iu" and len(shape) > 2:
        return 'for pictures, give inputs.astype("float32") / 255'
    if len(shape) == 4 and shape[3] in (1, 3) and shape[1] not in (1, 3):
        return "for pictures [N, H, W, C], give inputs.transpose(0, 3, 1, 2)"
    return ""


def _check_lambda(loss: Any, outputs: Any, targets: Tensor) -> None:
    """Raise ValueError if MindSpore cannot read a lambda's source, as inside a call."""
    function = loss.func if isinstance(loss, functools.partial) else loss
    if getattr(function, "__name__", "") != "<lambda>":
        return
    try:
        mindspore.jit(in_float32(loss))(outputs, targets)
    except Exception as error:
        raise ValueError(
            f"loss: MindSpore cannot compile this lambda ({first_line(error)}); "
            "write it as a function with def, or give mode='pynative'"
        ) from error


def _shape(value: Any) -> str:
    return describe(value) if isinstance(value, Tensor) else f"a {type(value).__name__}"
