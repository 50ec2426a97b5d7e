"""An update of several micro-batches."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor, ops

from resnet_fn.update.gradients import Gradients, each, forget_overflow

_assign, _add = ops.Assign(), ops.AssignAdd()


Source = Callable[..., tuple[Tensor, Gradients]]


def make_source(
    weights: Sequence[Parameter],
    parts: int,
    keep_statistics: Callable[[], None],
    micro_batch: Callable[..., tuple[Tensor, Gradients]],
    card: bool,
    compiled: Callable[[Any], Any],
) -> tuple[Callable[..., None] | None, Source]:
    """Where an update's sums of gradients come from.

    Args:
        weights: what the gradients are of.
        parts: micro-batches.
        keep_statistics: what is done before the first of them.
        micro_batch: (images, labels, *noise) → float32 [2], gradients.
        card: see `make_train_step`.
        compiled: `mindspore.jit`, or what leaves a function as it is.

    Returns:
        add_all(images, labels, *noise), which is called first, None for one micro-batch; and source(learning rate,
        *inputs) → float32 [2], gradients, sums over the micro-batches, to be called in a compiled function: its inputs
        are those where there is no add_all, and nothing otherwise.
    """
    if parts > 1:
        return _accumulated(weights, parts, keep_statistics, micro_batch, card, compiled)

    def whole_batch(rate: Tensor, images: Any, labels: Any, *noise: Any) -> tuple[Tensor, Gradients]:
        keep_statistics()
        if card:
            images = forget_overflow(images, rate)
        return micro_batch(images, labels, *noise)

    return None, whole_batch


def _accumulated(
    weights: Sequence[Parameter],
    parts: int,
    keep_statistics: Callable[[], None],
    micro_batch: Callable[..., tuple[Tensor, Gradients]],
    card: bool,
    compiled: Callable[[Any], Any],
) -> tuple[Callable[..., None], Source]:
    """One compiled function that adds a micro-batch's gradients to buffers; and their sums, to be read in another.

    Of three forms this keeps memory flat in the number of micro-batches (638 MB at 4 and at 8; a loop inside one
    compiled function 898 and 1,204 MB, ResNet-18 of width 16) and compiles fast.
    """
    buffers = tuple(Parameter(ops.zeros_like(p), name=f"sum.{p.name}", requires_grad=False) for p in weights)
    sums = Parameter(Tensor(np.zeros(2, np.float32)), name="sum.means", requires_grad=False)

    # Both return a constant: a graph that returns None cannot be written to a file, and after one that returns a tensor
    # the next call spins until it is there, on a core that the kernels need (docs/design.md).
    @compiled
    def begin() -> Tensor | int:
        keep_statistics()
        each(_clear, (*buffers, sums))
        return forget_overflow(sums, sums) if card else 0

    @compiled
    def add(images: Any, labels: Any, *noise: Any) -> int:
        means, gradients = micro_batch(images, labels, *noise)
        _add(sums, means)
        each(_add, buffers, gradients)
        return 0

    def add_all(*inputs: Any) -> None:
        begin()
        for part in range(parts):
            add(*(rows(samples, part, parts) for samples in inputs))

    def read(rate: Tensor) -> tuple[Tensor, Gradients]:
        return sums * 1.0, each(_read, buffers)

    return add_all, read


def rows(samples: Any, part: int, parts: int) -> Any:
    """One micro-batch's rows of a tensor, a tuple of them, or None."""
    if samples is None:
        return None
    if isinstance(samples, tuple):
        return tuple(rows(tensor, part, parts) for tensor in samples)
    size = samples.shape[0] // parts
    return samples[part * size : (part + 1) * size]


def _clear(buffer: Parameter) -> Tensor:
    return _assign(buffer, ops.zeros_like(buffer))


def _read(buffer: Parameter) -> Tensor:
    return buffer * 1.0
