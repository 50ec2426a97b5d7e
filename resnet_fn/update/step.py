"""The step: one update of weights and state as a compiled function.

The order is the design (docs/design.md): scaled loss and gradients, micro-batch by micro-batch, summed → mean over
micro-batches, unscale → all-reduce → finite? → clip by global norm → update, or skip → scaler adjusts → metrics.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.update.accumulation import make_source
from resnet_fn.update.batchnorm import average_batchnorm, batchnorm_statistics, keeper
from resnet_fn.update.ema import Ema
from resnet_fn.update.forms import Compile, in_one, in_three
from resnet_fn.update.gradients import (
    Gradients,
    Reduce,
    clip_by_global_norm,
    judge,
    on_card,
    own_part,
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


Compiled = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


class TrainStep(Protocol):
    """One update: see `make_train_step`."""

    def __call__(
        self,
        images: Tensor,
        labels: Tensor,
        learning_rate: Tensor | float,
        rank_values: Tensor | None = None,
        *noise: Tensor | None,
    ) -> StepResult:
        """Do one update."""


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """The share of samples whose largest logit is the label's (of soft labels: the likeliest class's)."""
    if labels.ndim == 2:
        labels = labels.argmax(1)
    return (logits.argmax(1) == labels).astype(mindspore.float32).mean()


def accuracy_by_class(logits: Tensor, labels: Tensor) -> Tensor:
    """Where a sample has any number of classes: the share of classes that are said rightly, yes from a logit of 0 on.

    Args:
        logits: [N, C].
        labels: [N, C], yes above 0.5.
    """
    return ((logits >= 0) == (labels > 0.5)).astype(mindspore.float32).mean()


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
    mode: str = "graph",
    prepare: Callable[[Tensor], Tensor] | None = None,
    jit: Compile = mindspore.jit,
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
        mode: "graph": one compiled function, sums over the ranks included; "split": they are made between two compiled
            functions; "pynative": nothing is compiled. The last two are for several workers, and for debugging.
        prepare: what is compiled in before the net, for images that come as bytes (`make_normalise`).
        jit: what compiles a function: `mindspore.jit`, or `CompileCache.jit`, which keeps what it has compiled.

    Returns:
        train_step(images, labels, learning_rate, rank_values=None, *noise): images [n, C, H, W] float32 and labels of
        this worker's share, n a multiple of `accumulate` (each a tensor, or a tuple of tensors where net and loss take
        one); learning_rate a float, or a float32 scalar tensor; rank_values float32 [k], whatever else is to be summed
        over the ranks with this update; noise [n, …], what the net takes beside the images (`make_noise`). It sets the
        net to training mode. With a loss, a gradient or a BatchNorm statistic that is not finite on any rank, nothing
        changes but the scaler.
    """
    scaler = scaler or DynamicLossScaler.off()
    weights = tuple(net.trainable_params())
    share = 1.0 / (accumulate * workers)
    update = optimizer.update  # jit cannot look into a NamedTuple
    # Where sums are made: in the compiled function, or between two.
    outside = mode != "graph"
    statistics = batchnorm_statistics(net)
    keep_statistics, put_back_statistics = keeper(statistics)
    average_statistics, own_statistics = average_batchnorm(statistics, workers, all_reduce, outside)
    follow = None if ema is None else ema.update
    rank_one_hot = Tensor(np.eye(workers, dtype=np.float32)[rank])
    nothing_more = Tensor(np.zeros(1, np.float32))
    card = on_card() if card is None else card
    clips = card and hasattr(ops, "clip_by_global_norm")

    differentiate = _differentiate(net, loss, accuracy, weights)

    def micro_batch(images: Tensor, labels: Tensor, *noise: Tensor) -> tuple[Tensor, Gradients]:
        if prepare is not None:
            images = prepare(images)
        (_, means), gradients = differentiate(images, labels, scaler.scale, *noise)
        return means, gradients

    def settle(
        gradients: Gradients, squares: Tensor, norm: Tensor, sums: Tensor, finite: Tensor, summed: Tensor, rate: Tensor
    ) -> Compiled:
        if finite:
            update(clip_by_global_norm(gradients, norm, clip_norm, clips), rate)
            if average_statistics is not None:
                average_statistics(summed)
            if follow is not None:
                follow()
        else:
            put_back_statistics()
        return sums[:2], norm, scaler.adjust(finite), sums[2:], squares  # a NamedTuple would leave the compiled graph

    def apply(rate: Tensor, rank_values: Tensor, sums: Tensor, gradients: Gradients) -> Compiled:
        gradients = unscale(gradients, share / scaler.scale)
        gradients, squares, norm, sums, finite = reduce_gradients(
            gradients, sums * share, rank_values, rank_one_hot, statistics, all_reduce, card
        )
        return settle(gradients, squares, norm, sums, finite, sums, rate)

    def contribute(rank_values: Tensor, sums: Tensor, gradients: Gradients) -> tuple[Tensor, ...]:
        gradients = unscale(gradients, share / scaler.scale)
        *_, own = own_part(gradients, sums * share, rank_values, rank_one_hot, statistics, True, card)
        return (*gradients, own) if own_statistics is None else (*gradients, own_statistics(), own)

    def apply_summed(rate: Tensor, *summed: Tensor) -> Compiled:
        gradients, sums = summed[: len(weights)], summed[-1]
        squares, norm, finite = judge(gradients, sums, workers, card)
        return settle(gradients, squares, norm, sums, finite, summed[-2], rate)

    compiled = jit if mode != "pynative" else _as_it_is
    add_all, source = make_source(weights, accumulate, keep_statistics, micro_batch, card, compiled)
    if all_reduce is not None and outside:
        finish = in_three(source, contribute, all_reduce, apply_summed, compiled)
    else:
        finish = in_one(source, apply, compiled)

    def train_step(
        images: Tensor,
        labels: Tensor,
        learning_rate: Tensor | float,
        rank_values: Tensor | None = None,
        *noise: Tensor | None,
    ) -> StepResult:
        net.set_train(True)  # a recompilation would take whatever flag is set then
        if not isinstance(learning_rate, Tensor):  # as a plain number every new value would recompile
            learning_rate = Tensor(learning_rate, mindspore.float32)
        values = nothing_more if rank_values is None else rank_values
        if add_all is None:
            return StepResult(*finish(learning_rate, values, images, labels, *noise))
        add_all(images, labels, *noise)
        return StepResult(*finish(learning_rate, values))

    return train_step


def _differentiate(net: nn.Cell, loss: Loss, accuracy: Loss, weights: Sequence[Parameter]) -> Callable[..., Any]:
    def scaled_loss(images: Tensor, labels: Tensor, scale: Tensor, *noise: Tensor) -> tuple[Tensor, Tensor]:
        logits = net(images, *noise)
        value = loss(logits, labels)
        return value * scale, ops.stack((value, accuracy(logits, labels)))

    return mindspore.value_and_grad(scaled_loss, None, weights, has_aux=True)


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function
