"""Functions for compiled code that store the tensors that pass through them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, ops

from resnet_fn.parity.record.mindspore_cell import array_of, outputs_of
from resnet_fn.parity.record.mindspore_loss import Loss
from resnet_fn.parity.trace.returned import named_outputs, tensor_paths
from resnet_fn.parity.trace.tree import Arrays
from resnet_fn.runtime.workers import Reduce
from resnet_fn.update.state import Optimizer

_assign, _cast = ops.Assign(), ops.Cast()


def recording_reduce(
    all_reduce: Reduce, shapes: Mapping[str, Sequence[int]]
) -> tuple[Reduce, Callable[[], Arrays], Callable[[], Arrays]]:
    """Return an all-reduce that records its calls, and two functions that return the recorded
    inputs and results.
    """
    keep_sent, sent = recorder(shapes, "sent")
    keep_received, received = recorder(shapes, "received")
    count = len(shapes)
    first_shape = next(iter(shapes.values()))
    first = tuple(first_shape)

    def record_and_reduce(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        sums = all_reduce(tensors)
        if len(tensors) == count and tensors[0].shape == first:  # a call with all gradients
            keep_sent(tensors)
            keep_received(sums)
        return sums

    return record_and_reduce, sent, received


def recorder(
    shapes: Mapping[str, Sequence[int]], title: str, types: Mapping[str, Any] | None = None
) -> tuple[Callable[[Any], None], Callable[[], Arrays]]:
    """Return a function that stores tensors, and a function that returns them as arrays, named as
    in `shapes`.

    The arrays have the types in `types`, by default float32.
    """
    types = types or {}
    kinds = tuple(types.get(name, mindspore.float32) for name in shapes)
    zeros = []
    for index, (shape, kind) in enumerate(zip(shapes.values(), kinds, strict=True)):
        zero = Tensor(np.zeros(shape), kind)
        name = f"record.{title}.{index}"
        zeros.append(Parameter(zero, name=name, requires_grad=False))
    parameters = tuple(zeros)

    def keep(tensors: Sequence[Tensor]) -> None:
        for index in range(len(parameters)):
            value = _cast(tensors[index], kinds[index])
            _assign(parameters[index], value)

    def kept() -> Arrays:
        arrays = map(array_of, parameters)
        return dict(zip(shapes, arrays, strict=True))

    return keep, kept


def output_recorder(
    like: Any, title: str, compiled: bool
) -> tuple[Callable[[Any], None], Callable[[], Arrays]]:
    """Return a function that stores outputs, and a function that returns them as arrays.

    In compiled code, outputs must have the structure of `like`, and only tensors are stored:
    numbers and texts are constants of the code.
    """
    if not compiled:
        last: Arrays = {}

        def keep_any(outputs: Any) -> None:
            last.clear()
            last.update(outputs_of(outputs))

        return keep_any, lambda: dict(last)

    constants = outputs_of(like)
    pick, tensors = picker(like)
    types = {}
    shapes = {}
    for name, tensor in tensors.items():
        types[name] = _stored_type(tensor)
        shapes[name] = tensor.shape
    keep, kept = recorder(shapes, title, types)

    def keep_outputs(outputs: Any) -> None:
        keep(pick(outputs))

    return keep_outputs, lambda: constants | kept()


def picker(like: Any) -> tuple[Callable[[Any], tuple[Tensor, ...]], dict[str, Tensor]]:
    """Return a function for compiled code that returns the tensors in outputs structured like
    `like`, and the tensors of `like` by name, in the same order.
    """
    named = tensor_paths(like, Tensor)
    paths = tuple(named.values())
    outputs = named_outputs(like)

    def pick(outputs: Any) -> tuple[Tensor, ...]:
        tensors: tuple[Tensor, ...] = ()
        for index in range(len(paths)):
            value = outputs
            path = paths[index]
            for key, is_attribute in path:
                value = getattr(value, key) if is_attribute else value[key]
            tensors += (value,)
        return tensors

    return pick, {name: outputs[name] for name in named}


def _stored_type(tensor: Tensor) -> Any:
    kind = tensor.dtype
    is_half = kind in (mindspore.float16, mindspore.bfloat16)
    return mindspore.float32 if is_half else kind


def recording_optimizer(optimizer: Optimizer | None, keep: Callable[[Any], None]) -> Optimizer:
    """Return an optimizer that also calls `keep` with the gradients.

    If `optimizer` is None, no weights change.
    """

    def record(gradients: Sequence[Tensor], learning_rate: Tensor) -> None:
        keep(gradients)

    if optimizer is None:
        return Optimizer((), record)
    after = optimizer.update

    # With one function and an `if after is not None`, jit would silently leave out the optimizer's
    # operations.
    def record_and_update(gradients: Sequence[Tensor], learning_rate: Tensor) -> None:
        keep(gradients)
        after(gradients, learning_rate)

    return Optimizer(optimizer.state, record_and_update)


def recording_loss(loss: Loss, keep: Callable[[Any], None] | None) -> Loss:
    """Return a loss that also calls `keep` with the outputs. It is a float32 without axes."""

    def compute(values: Any, targets: Any) -> Tensor:
        return loss(values, targets).reshape(()).astype(mindspore.float32)

    if keep is None:
        return compute

    def record(values: Any, targets: Any) -> Tensor:
        keep(values)
        return compute(values, targets)

    return record
