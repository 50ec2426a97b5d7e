"""Functions for compiled code that store the tensors that pass through them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, ops

from resnet_fn.parity.record.mindspore_cell import outputs_of
from resnet_fn.parity.trace.tree import Arrays, leaves
from resnet_fn.runtime.workers import Reduce
from resnet_fn.update.state import Optimizer

Loss = Callable[[Any, Any], Tensor]

_assign = ops.Assign()


def recording_reduce(
    all_reduce: Reduce, shapes: Mapping[str, Sequence[int]]
) -> tuple[Reduce, Callable[[], Arrays], Callable[[], Arrays]]:
    """Return an all-reduce that records its calls, and two functions that return the recorded
    inputs and results.
    """
    (keep_sent, sent), (keep_received, received) = (
        recorder(shapes, "sent"),
        recorder(shapes, "received"),
    )
    count, first = len(shapes), tuple(next(iter(shapes.values())))

    def record_and_reduce(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        sums = all_reduce(tensors)
        if len(tensors) == count and tensors[0].shape == first:  # a call with all gradients
            keep_sent(tensors)
            keep_received(sums)
        return sums

    return record_and_reduce, sent, received


def recorder(
    shapes: Mapping[str, Sequence[int]], title: str
) -> tuple[Callable[[Any], None], Callable[[], Arrays]]:
    """Return a function that stores tensors, and a function that returns them as arrays, named as
    in `shapes`.
    """
    parameters = tuple(
        Parameter(
            Tensor(np.zeros(shape, np.float32)), name=f"record.{title}.{index}", requires_grad=False
        )
        for index, shape in enumerate(shapes.values())
    )

    def keep(tensors: Sequence[Tensor]) -> None:
        for index in range(len(parameters)):
            _assign(parameters[index], tensors[index].astype(mindspore.float32))

    def kept() -> Arrays:
        return {
            name: parameter.numpy().copy()
            for name, parameter in zip(shapes, parameters, strict=True)
        }

    return keep, kept


def output_recorder(like: Any, title: str) -> tuple[Callable[[Any], None], Callable[[], Arrays]]:
    """Return a function that stores outputs structured like `like`, and a function that returns
    them as arrays.
    """
    paths = tuple(path for path, leaf in leaves(like) if isinstance(leaf, Tensor))
    keep, kept = recorder({name: array.shape for name, array in outputs_of(like).items()}, title)

    def keep_outputs(outputs: Any) -> None:
        tensors: tuple[Tensor, ...] = ()
        for index in range(len(paths)):
            value = outputs
            for key in paths[index]:
                value = value[key]
            tensors += (value,)
        keep(tensors)

    return keep_outputs, kept


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


def recording_loss(loss: Loss, keep: Callable[[Any], None]) -> Loss:
    """Return a loss that also calls `keep` with the outputs. It is a float32 without axes."""

    def record(values: Any, targets: Any) -> Tensor:
        keep(values)
        return loss(values, targets).reshape(()).astype(mindspore.float32)

    return record
