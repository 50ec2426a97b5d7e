"""The step: one update of the weights and all other state, as a compiled function; from "unscale" on it is `apply`.

    copy BatchNorm's statistics → scaled loss and gradients, of one batch or summed over micro-batches → unscale → is
    this worker finite? → all-reduce → is everything finite, on every worker, and did every worker have its samples? →
    clip by global norm, optimizer, BatchNorm's average over the workers, moving average; or put back the copy → loss
    scaler → results

The workers add up their gradients, one all-reduce for each tensor; then the report, float32 [3 + flags + workers]:
loss, metric, number of workers without samples, the caller's flags, and for each worker 1 if its own numbers were *not*
finite (`exchange.py`); and, if the update is applied, BatchNorm's statistics, joined in one vector. With
`sync_batchnorm` each BatchNorm adds up its sums, too, within forward and backward.

One batch is one compiled function. Micro-batches take three: `begin`, `add` for each, `finish`; memory stays flat in
their number.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.data.input_spec import InputSpec
from resnet_fn.models.inputs import normalisation, normalise
from resnet_fn.runtime.workers import Workers
from resnet_fn.update.average import move_average
from resnet_fn.update.card import clear_overflow, has_clip, no_overflow, on_card
from resnet_fn.update.exchange import (
    MEANS,
    Report,
    all_were_finite,
    average_statistics,
    loss_of,
    make_flags,
    none_withheld,
    pack,
    stack_means,
    unpack,
)
from resnet_fn.update.gradients import (
    Gradients,
    assign_tensors,
    clip_by_global_norm,
    is_finite,
    map_tensors,
    norm_of,
    squared_norms,
    unscale,
)
from resnet_fn.update.loss import Loss
from resnet_fn.update.state import Optimizer, TrainState, make_state

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
Results = tuple[Tensor, Tensor, Tensor, Tensor]

_assign, _add = ops.Assign(), ops.AssignAdd()


class StepPlan(NamedTuple):
    """How an update is computed.

    Attributes:
        clip_norm: largest global gradient norm; 0: no clipping.
        micro_batches: into how many parts this worker's samples are split.
        normalise: what images that come as bytes are normalised by, in the step; None: they come normalised.
        card: compile what an Ascend card computes (`update/card.py`); None: on a card. A CPU can run it, too.
    """

    clip_norm: float = 0.0
    micro_batches: int = 1
    normalise: InputSpec | None = None
    card: bool | None = None


class StepResult(NamedTuple):
    """What an update returns, as tensors.

    Attributes:
        packed: float32, the update's report as the workers added it up; `report` is the same, unpacked.
        grad_norm: float32 scalar, the global norm before clipping.
        scaler: float32 [3], the loss scale that was used, updates skipped so far, skipped in a row.
        squares: float32 [parameters], the squared norm of each trained parameter's gradient, before clipping.
        workers: how many shared it.
    """

    packed: Tensor
    grad_norm: Tensor
    scaler: Tensor
    squares: Tensor
    workers: int

    @property
    def report(self) -> Report:
        """Loss, metric and what the workers exchanged beside gradients, as tensors."""
        return unpack(self.packed, self.workers)

    @property
    def loss(self) -> Tensor:
        """The mean loss over the whole batch of all workers, before the update; float32 scalar."""
        return self.report.loss

    @property
    def accuracy(self) -> Tensor:
        """The mean of the metric, the accuracy by default, over the whole batch; float32 scalar."""
        return self.report.metric


# (images, labels, learning_rate, flags=None, *noise) → StepResult: see `make_train_step`.
TrainStep = Callable[..., StepResult]


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """The share of samples whose largest logit is the label's (of soft labels: the likeliest class's)."""
    if labels.ndim == 2:
        labels = labels.argmax(1)
    return (logits.argmax(1) == labels).astype(mindspore.float32).mean()


def accuracy_by_class(logits: Tensor, labels: Tensor) -> Tensor:
    """The share of (sample, class) pairs that are right: logits [N, C] from 0 on, for labels [N, C] above 0.5."""
    return ((logits >= 0) == (labels > 0.5)).astype(mindspore.float32).mean()


def make_train_step(
    net: nn.Cell,
    loss: Loss,
    optimizer: Optimizer,
    *,
    state: TrainState | None = None,
    metric: Loss = accuracy,
    workers: Workers = Workers(),
    plan: StepPlan = StepPlan(),
    jit: Compile | None = mindspore.jit,
) -> TrainStep:
    """Compile one update of `net`.

    Args:
        net: maps images to logits.
        loss: (logits, labels) → mean loss over the batch.
        optimizer: see `momentum_sgd`.
        state: all that an update changes, with the loss scaler and the moving average; None: `make_state(net,
            optimizer)`.
        metric: what is averaged beside the loss, of the same arguments.
        workers: the workers that share the update, with the sum over them (`with_all_reduce`).
        plan: clipping, micro-batches, device.
        jit: what compiles a function: `mindspore.jit`, or `CompileCache.jit`, which keeps what it has compiled; None:
            nothing is compiled, for print and pdb.

    Returns:
        train_step(images, labels, learning_rate, flags=None, *noise): images [n, C, H, W] float32 (uint8 with
        `plan.normalise`) and labels of this worker's share, n a multiple of the micro-batches (each a tensor, or a
        tuple of tensors where net and loss take one); learning_rate a float, or a float32 scalar tensor; flags, what
        the workers tell each other with this update (`make_flags`); noise [n, …], what the net takes beside the images
        (`make_noise`). It sets the net to training mode. If a loss, a gradient or a BatchNorm statistic is not finite
        on any worker, nothing changes but the scaler; if a worker withholds its samples, nothing at all.
    """
    state = state or make_state(net, optimizer)
    # Compiled functions cannot read NamedTuples and data classes: what they use is unpacked here.
    optimize, all_reduce, scaler = optimizer.update, workers.all_reduce, state.scaler
    trained, statistics = state.trained, state.statistics
    averages, *average_arguments = state.average or ((),)
    size, parts, limit = workers.size, plan.micro_batches, plan.clip_norm
    share, one_hot = 1.0 / (parts * size), Tensor(np.eye(size, dtype=np.float32)[workers.rank])
    sizes = [statistic.shape[0] for statistic in statistics]
    # One copy, made before each update: the statistics change in every forward pass, that is once more in each
    # micro-batch, before it is known whether the update is applied, and a NaN would stay in them for good. Putting the
    # copy back undoes all of them.
    kept = tuple(Parameter(p.copy(), name=f"kept.{p.name}", requires_grad=False) for p in statistics)
    card = on_card() if plan.card is None else plan.card
    by_operation = card and has_clip()
    constants = () if plan.normalise is None else normalisation(plan.normalise)
    compiled = jit or _as_it_is

    def scaled_loss(images: Tensor, labels: Tensor, scale: Tensor, *noise: Tensor) -> tuple[Tensor, Tensor]:
        logits = net(images, *noise)
        value = loss(logits, labels)
        # To average one more metric in training: here, in exchange.py (layout, `stack_means`, `Report`), where
        # session.py calls make_train_step (with `Task.accuracy` of evaluation/task.py), in the event of
        # run/loop.log_update, and in SCALARS of telemetry/board.py.
        return value * scale, stack_means(value, metric(logits, labels))

    differentiate = mindspore.value_and_grad(scaled_loss, None, trained, has_aux=True)

    def means_and_gradients(images: Tensor, labels: Tensor, *noise: Tensor) -> tuple[Tensor, Gradients]:
        if constants:
            images = normalise(images, constants)
        (_, means), gradients = differentiate(images, labels, scaler.scale, *noise)
        return means, gradients

    def apply(mean_sums: Tensor, gradient_sums: Gradients, flags: Tensor, rate: Tensor) -> Results:
        """One update, from loss, metric and gradients summed over the micro-batches."""
        means, gradients = mean_sums * share, unscale(gradient_sums, share / scaler.scale)  # sum over the workers: mean
        # Divided by the number of workers, so that their sum is the mean. With several workers only the first layer's
        # gradient is looked at here: backward reaches it last, and what was not finite on the way shows in it.
        squares = squared_norms(gradients if all_reduce is None else gradients[:1], card)
        norm = norm_of(squares)
        own_finite = is_finite(means[0], norm, statistics)
        if card:
            own_finite = ops.logical_and(own_finite, no_overflow(gradients))
        report, finite = pack(means, flags, own_finite, one_hot), own_finite
        if all_reduce is not None:
            gradients, report = all_reduce(gradients), all_reduce((report,))[0]
            squares = squared_norms(gradients, card)
            norm = norm_of(squares)
            finite = ops.logical_and(is_finite(loss_of(report), norm), all_were_finite(report, size))
        # From here on everything is the same on every worker.
        complete = none_withheld(report)
        applied = ops.logical_and(finite, complete)
        if applied:
            optimize(clip_by_global_norm(gradients, norm, limit, by_operation), rate)
            if all_reduce is not None:
                average_statistics(statistics, sizes, 1.0 / size, all_reduce)
            if averages:
                move_average(averages, *average_arguments)
        else:
            assign_tensors(statistics, kept)
        return report, norm, scaler.adjust(applied, complete), squares  # a NamedTuple would leave the compiled graph

    if parts == 1:

        @compiled
        def update(rate: Tensor, flags: Tensor, images: Any, labels: Any, *noise: Any) -> Results:
            assign_tensors(kept, statistics)
            if card:
                images = clear_overflow(images, rate)
            return apply(*means_and_gradients(images, labels, *noise), flags, rate)

    else:
        gradient_sums = tuple(Parameter(ops.zeros_like(p), name=f"sum.{p.name}", requires_grad=False) for p in trained)
        mean_sums = Parameter(Tensor(np.zeros(MEANS, np.float32)), name="sum.means", requires_grad=False)

        # Both return a constant: a graph that returns None cannot be written to a file, and after one that returns a
        # tensor the next call may spin until it is there, on a core that the kernels need.
        @compiled
        def begin() -> Tensor | int:
            assign_tensors(kept, statistics)
            map_tensors(_clear, (*gradient_sums, mean_sums))
            return clear_overflow(mean_sums, mean_sums) if card else 0

        @compiled
        def add(images: Any, labels: Any, *noise: Any) -> int:
            means, gradients = means_and_gradients(images, labels, *noise)
            _add(mean_sums, means)
            map_tensors(_add, gradient_sums, gradients)
            return 0

        @compiled
        def finish(rate: Tensor, flags: Tensor) -> Results:
            return apply(mean_sums * 1.0, map_tensors(_read, gradient_sums), flags, rate)

        def update(rate: Tensor, flags: Tensor, *inputs: Any) -> Results:
            begin()
            for part in range(parts):
                add(*(as_variables(rows(samples, part, parts)) for samples in inputs))
            return finish(rate, flags)

    nothing_to_tell = make_flags()

    def train_step(
        images: Any, labels: Any, learning_rate: Tensor | float, flags: Tensor | None = None, *noise: Tensor | None
    ) -> StepResult:
        net.set_train(True)  # a recompilation would take whatever flag is set then
        if not isinstance(learning_rate, Tensor):  # as a plain number every new value would recompile
            learning_rate = Tensor(learning_rate, mindspore.float32)
        flags = nothing_to_tell if flags is None else flags
        inputs = (as_variables(images), as_variables(labels), *noise)
        packed, grad_norm, scales, squares = update(learning_rate, flags, *inputs)
        return StepResult(packed, grad_norm, scales, squares, size)

    return train_step


def as_variables(samples: Any) -> Any:
    """The same, but that a compiled function takes a tuple's tensors as its inputs, not as constants of its own."""
    return mindspore.mutable(samples) if isinstance(samples, tuple) else samples


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


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function
