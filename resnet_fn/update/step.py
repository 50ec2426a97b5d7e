"""The step: one update of weights and state as a compiled function.

The order is the design (docs/design.md): scaled loss and gradients, micro-batch by micro-batch, summed → mean over
micro-batches, unscale → all-reduce → finite? → clip by global norm → update, or skip → scaler adjusts → metrics.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.update.batchnorm import average_batchnorm
from resnet_fn.update.ema import Ema
from resnet_fn.update.gradients import (
    Gradients,
    Reduce,
    clip_by_global_norm,
    each,
    forget_overflow,
    on_card,
    reduce_gradients,
    unscale,
)
from resnet_fn.update.loss import Loss
from resnet_fn.update.loss_scale import DynamicLossScaler
from resnet_fn.update.optimizer import Optimizer


class StepResult(NamedTuple):
    """What an update returns, as tensors that are still being computed.

    Attributes:
        means: float32 [2], the loss and the accuracy over the whole batch of all workers, before the update.
        grad_norm: float32 scalar, the global norm before clipping.
        scaler: float32 [3], the loss scale that was used, updates skipped so far, skipped in a row.
        rank_sums: float32 [k + workers], the sum over the ranks of `rank_values`; then 1 for each rank whose own loss,
            gradients or BatchNorm statistics were not finite (of several workers: the first layer's gradient). It rides
            along in the all-reduce of `means`: every rank knows it at once.
        squares: float32 [parameters], the squared norm of each trained parameter's gradient, before clipping.
    """

    means: Tensor
    grad_norm: Tensor
    scaler: Tensor
    rank_sums: Tensor
    squares: Tensor

    @property
    def loss(self) -> Tensor:
        """The mean loss, float32 scalar."""
        return self.means[0]

    @property
    def accuracy(self) -> Tensor:
        """The share of samples whose likeliest class is the label's, float32 scalar."""
        return self.means[1]


_assign, _add = ops.Assign(), ops.AssignAdd()

Compiled = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


class TrainStep(Protocol):
    """One update: see `make_train_step`."""

    def __call__(
        self, images: Tensor, labels: Tensor, learning_rate: Tensor | float, rank_values: Tensor | None = None
    ) -> StepResult:
        """Do one update."""


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """The share of samples whose largest logit is the label's (of soft labels: the likeliest class's)."""
    if labels.ndim == 2:
        labels = labels.argmax(1)
    return (logits.argmax(1) == labels).astype(mindspore.float32).mean()


def make_train_step(
    net: nn.Cell,
    loss: Loss,
    optimizer: Optimizer,
    *,
    scaler: DynamicLossScaler | None = None,
    clip_norm: float = 0.0,
    accumulate: int = 1,
    workers: int = 1,
    rank: int = 0,
    all_reduce: Reduce | None = None,
    ema: Ema | None = None,
    accuracy: Loss = accuracy,
    card: bool | None = None,
) -> TrainStep:
    """Compile one update of `net`.

    Args:
        net: maps images to logits. Its trainable parameters are those that the optimizer was made for, in order.
        loss: (logits, labels) → mean loss over the batch.
        optimizer: see `momentum_sgd`.
        scaler: the loss scaler; None: `DynamicLossScaler.off()`.
        clip_norm: largest global gradient norm, 0 for no clipping.
        accumulate: micro-batches into which this worker's samples are split.
        workers, rank, all_reduce: how many workers share the update, which of them this is, and the sum over them
            (`make_all_reduce`).
        ema: the moving average that follows every update that is not skipped.
        accuracy: what is averaged beside the loss, of the same arguments.
        card: compile what an Ascend card computes (`no_overflow`, `clip_by_global_norm`); None: where this process
            computes on one. A CPU can run it, too.

    Returns:
        train_step(images, labels, learning_rate, rank_values=None): images [n, C, H, W] float32 and labels of this
        worker's share, n a multiple of `accumulate` (each a tensor, or a tuple of tensors where net and loss take
        one); learning_rate a float, or a float32 scalar tensor; rank_values float32 [k], whatever else is to be summed
        over the ranks with this update. It sets the net to training mode. With a loss, a gradient or a BatchNorm
        statistic that is not finite on any rank, nothing changes but the scaler.
    """
    scaler = scaler or DynamicLossScaler.off()
    weights = tuple(net.trainable_params())
    # BatchNorm's moving statistics change in the forward pass, before anyone knows whether the update is skipped;
    # a NaN would stay in them for good. So they are copied first and put back on a skip.
    statistics = tuple(parameter for parameter in net.get_parameters() if not parameter.requires_grad)
    kept = tuple(Parameter(p.copy(), name=f"kept.{p.name}", requires_grad=False) for p in statistics)
    vectors = tuple(parameter for parameter in statistics if parameter.ndim == 1)  # all of BatchNorm's are
    share = 1.0 / (accumulate * workers)
    update = optimizer.update  # jit cannot look into a NamedTuple
    average_statistics = average_batchnorm(statistics, workers, all_reduce)
    follow = None if ema is None else ema.update
    rank_one_hot = Tensor(np.eye(workers, dtype=np.float32)[rank])
    nothing_more = Tensor(np.zeros(1, np.float32))
    card = on_card() if card is None else card
    clips = card and hasattr(ops, "clip_by_global_norm")

    def scaled_loss(images: Tensor, labels: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        logits = net(images)
        value = loss(logits, labels)
        return value * scale, ops.stack((value, accuracy(logits, labels)))

    differentiate = mindspore.value_and_grad(scaled_loss, None, weights, has_aux=True)

    def keep_statistics() -> None:
        each(_assign, kept, statistics)

    def micro_batch(images: Tensor, labels: Tensor) -> tuple[Tensor, Gradients]:
        (_, means), gradients = differentiate(images, labels, scaler.scale)
        return means, gradients

    def apply(sums: Tensor, gradients: Gradients, learning_rate: Tensor, rank_values: Tensor) -> Compiled:
        gradients = unscale(gradients, share / scaler.scale)
        means = sums * share
        gradients, squares, norm, reduced, finite = reduce_gradients(
            gradients, means, rank_values, rank_one_hot, vectors, all_reduce, card
        )
        means, rank_sums = reduced[:2], reduced[2:]
        if finite:
            update(clip_by_global_norm(gradients, norm, clip_norm, clips), learning_rate)
            if average_statistics is not None:
                average_statistics()
            if follow is not None:
                follow()
        else:
            each(_assign, statistics, kept)
        return means, norm, scaler.adjust(finite), rank_sums, squares  # a NamedTuple would leave the compiled graph

    if accumulate == 1:

        @mindspore.jit
        def whole_update(images: Tensor, labels: Tensor, learning_rate: Tensor, rank_values: Tensor) -> Compiled:
            keep_statistics()
            if card:
                images = forget_overflow(images, learning_rate)
            means, gradients = micro_batch(images, labels)
            return apply(means, gradients, learning_rate, rank_values)

        compiled = whole_update
    else:
        compiled = _accumulated(weights, accumulate, keep_statistics, micro_batch, apply, card)

    def train_step(
        images: Tensor, labels: Tensor, learning_rate: Tensor | float, rank_values: Tensor | None = None
    ) -> StepResult:
        net.set_train(True)  # a recompilation would take whatever flag is set then
        if not isinstance(learning_rate, Tensor):  # as a plain number every new value would recompile
            learning_rate = Tensor(learning_rate, mindspore.float32)
        return StepResult(
            *compiled(images, labels, learning_rate, nothing_more if rank_values is None else rank_values)
        )

    return train_step


def _accumulated(
    weights: Sequence[Parameter],
    accumulate: int,
    keep_statistics: Callable[[], None],
    micro_batch: Callable[[Tensor, Tensor], tuple[Tensor, Gradients]],
    apply: Callable[[Tensor, Gradients, Tensor, Tensor], Compiled],
    card: bool,
) -> Callable[[Tensor, Tensor, Tensor, Tensor], Compiled]:
    """One compiled function that adds a micro-batch's gradients to buffers, one that applies their sum.

    Of three forms this keeps memory flat in the number of micro-batches (638 MB at 4 and at 8; a loop inside one
    compiled function 898 and 1,204 MB, ResNet-18 of width 16) and compiles fast.
    """
    buffers = tuple(Parameter(ops.zeros_like(p), name=f"sum.{p.name}", requires_grad=False) for p in weights)
    sums = Parameter(Tensor(np.zeros(2, np.float32)), name="sum.means", requires_grad=False)

    @mindspore.jit
    def begin() -> Tensor | None:
        keep_statistics()
        each(_clear, (*buffers, sums))
        return forget_overflow(sums, sums) if card else None

    @mindspore.jit
    def add(images: Tensor, labels: Tensor) -> None:
        means, gradients = micro_batch(images, labels)
        _add(sums, means)
        each(_add, buffers, gradients)

    @mindspore.jit
    def finish(learning_rate: Tensor, rank_values: Tensor) -> Compiled:
        return apply(sums * 1.0, each(_read, buffers), learning_rate, rank_values)

    def update(images: Tensor, labels: Tensor, learning_rate: Tensor, rank_values: Tensor) -> Compiled:
        begin()
        for part in range(accumulate):
            add(_share(images, part, accumulate), _share(labels, part, accumulate))
        return finish(learning_rate, rank_values)

    return update


def _share(samples: Tensor | tuple[Tensor, ...], part: int, parts: int) -> Tensor | tuple[Tensor, ...]:
    """One micro-batch's rows."""
    if isinstance(samples, tuple):
        return tuple(_share(tensor, part, parts) for tensor in samples)
    size = samples.shape[0] // parts
    return samples[part * size : (part + 1) * size]


def _clear(buffer: Parameter) -> Tensor:
    return _assign(buffer, ops.zeros_like(buffer))


def _read(buffer: Parameter) -> Tensor:
    return buffer * 1.0
