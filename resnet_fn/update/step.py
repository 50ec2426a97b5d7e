"""The step is a compiled function that makes one update of the weights and of all other state.

It works in this order; from 3 on it is the function `apply`:

    1  copy BatchNorm's statistics
    2  scaled loss and gradients, of one batch or summed over micro-batches
    3  unscale; are this worker's own numbers finite? (a first look; 5 is the full test)
    4  all-reduce, the sum over the workers: of each gradient; of the report; of BatchNorm's statistics, joined to one
       vector. That makes (gradients + 2) collectives an update (one fewer without BatchNorm; where gradients are joined
       to vectors, see below, these count), whether or not it is then applied, and however many micro-batches it has
    5  are all numbers finite, on every worker, and did every worker have its samples?
    6  if so: clip by global norm, optimizer, BatchNorm's statistics become their mean over the workers, moving average
       if not: put back the copy of BatchNorm's statistics; nothing else has changed so far
    7  adjust the loss scale (not if a worker had no samples: then nothing changes); return the results

BatchNorm's statistics are moved by every forward pass: K times in an update of K micro-batches, on each worker by its
own samples. Their mean over the workers is taken once an update. Frozen BatchNorms do not move. With `sync_batchnorm`
(not with micro-batches) each BatchNorm also exchanges its own sums: two more collectives in the forward pass and two in
the backward pass.

The report is a small tensor: loss, metric, how many workers withheld their samples (could not read them), flags (the
caller's own numbers, such as signals received), and which workers were not finite; `exchange.py` has its layout. In
small nets on a CPU, without a moving average, SGD and Adam join the gradients to a few vectors (`vectors.py`); these
are then summed, clipped and applied. The learning rate is an argument: `schedule.py` computes it from the recipe and
the update's number alone (linear warm-up to the peak `learning_rate`; then a cosine or a line down to
`min_learning_rate`, steps at `milestones`, or constant). The optimizer multiplies it by a factor for each parameter,
which follows from `layer_decay` and `head_learning_rate` (`groups.py`). All that an update changes, and that a
checkpoint must therefore hold, is the `TrainState` (`state.py`).

One batch is one compiled function. Micro-batches take three, `begin`, `add` for each of them, and `finish`, so that
memory does not grow with their number.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.data.input_spec import InputSpec
from resnet_fn.models.inputs import normalisation, normalise
from resnet_fn.runtime.workers import Workers
from resnet_fn.update.ascend import clear_overflow, has_clip, no_overflow, on_ascend
from resnet_fn.update.average import move_average
from resnet_fn.update.exchange import (
    MEANS,
    Report,
    all_finite,
    make_flags,
    mean_over_workers,
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
from resnet_fn.update.state import FixedMemory, Optimizer, TrainState, make_state

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
Results = tuple[Tensor, Tensor, Tensor, Tensor]

_assign, _add = ops.Assign(), ops.AssignAdd()
_NOTHING = Tensor(0.0, mindspore.float32)


class StepPlan(NamedTuple):
    """How an update is computed.

    Attributes:
        clip_norm: largest global gradient norm; 0: no clipping.
        micro_batches: number of parts into which this worker's samples are split.
        normalise: mean and deviation for images that arrive as bytes; None: images arrive normalised.
        ascend: compile the step for an Ascend card (`update/ascend.py`), which a CPU can run too; None: only on a card.
    """

    clip_norm: float = 0.0
    micro_batches: int = 1
    normalise: InputSpec | None = None
    ascend: bool | None = None


class StepResult(NamedTuple):
    """What an update returns, as tensors.

    Attributes:
        packed: float32 [3 + flags + workers], the report, summed over the workers; `report` unpacks it.
        grad_norm: float32 scalar, the global norm before clipping.
        scaler: float32 [3], the loss scale of this update, updates skipped so far, and skipped in a row.
        squares: float32, for the log of the layers' norms (telemetry/norms.py), in the order of `TrainState.trained`:
            each gradient's squared norm before clipping, or each element's square if gradients are joined to vectors.
        workers: how many workers shared the update.
    """

    packed: Tensor
    grad_norm: Tensor
    scaler: Tensor
    squares: Tensor
    workers: int

    @property
    def report(self) -> Report:
        """Return loss, metric, and all else that the workers exchange beside gradients, as tensors."""
        return unpack(self.packed, self.workers)

    @property
    def loss(self) -> Tensor:
        """Return the mean loss over the whole batch of all workers, before the update; float32 scalar."""
        return self.report.loss

    @property
    def accuracy(self) -> Tensor:
        """Return the metric's mean (by default the accuracy) over the whole batch of all workers; float32 scalar."""
        return self.report.metric


# (images, labels, learning_rate, flags=None, *masks) → StepResult: see `make_train_step`.
TrainStep = Callable[..., StepResult]


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Compute the share of samples whose largest logit is at the label (of soft labels: their largest)."""
    if labels.ndim == 2:
        labels = labels.argmax(1)
    return (logits.argmax(1) == labels).astype(mindspore.float32).mean()


def accuracy_by_class(logits: Tensor, labels: Tensor) -> Tensor:
    """Compute the share of correct (sample, class) pairs: logit >= 0 where the label is above 0.5; both are [N, C]."""
    return ((logits >= 0) == (labels > 0.5)).astype(mindspore.float32).mean()


def no_metric(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return 0: the metric where targets are no classes."""
    return _NOTHING


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
        state: all that an update changes, with loss scaler and moving average; None: `make_state(net, optimizer)`.
        metric: (logits, labels) → a number that is averaged over the batch, as the loss is.
        workers: the workers that share the update; if they are several, from `with_all_reduce`.
        plan: clipping, micro-batches, normalisation, device.
        jit: compiles a function; None: nothing is compiled, so that print and pdb work.

    Returns:
        train_step(images, labels, learning_rate, flags=None, *masks) → `StepResult`. It sets the net to training mode.
        If a loss, a gradient or a BatchNorm statistic is not finite on any worker, only the loss scaler changes. If a
        worker has no samples, nothing changes. The arguments are this worker's part of the update:

        images: float32 [n, C, H, W], or uint8 with `plan.normalise`; n is a multiple of the micro-batches. Images and
            labels may each be a tuple of tensors, if net and loss take one.
        labels: as `loss` takes them, [n] or [n, …].
        learning_rate: a float, or a float32 scalar tensor.
        flags: numbers that are summed over the workers with this update (`make_flags`).
        masks: the net's masks for dropout and stochastic depth, [n, …] each (`make_masks`).

        After the first call, on a CPU, a ValueError names state that has got other memory (see `FixedMemory`).
    """
    state = state or make_state(net, optimizer)
    # Compiled functions cannot read NamedTuples and dataclasses, so everything that they use is unpacked here.
    join, optimize, all_reduce, scaler = optimizer.join, optimizer.update, workers.all_reduce, state.scaler
    trained, statistics = state.trained, state.statistics
    averages, *average_arguments = state.average or ((),)  # `move_average` takes a `MovingAverage`'s fields
    size, micro_batches, clip_norm = workers.size, plan.micro_batches, plan.clip_norm
    one_hot = Tensor(np.eye(size, dtype=np.float32)[workers.rank])
    # A sum over micro-batches and workers, times this, is the mean over the whole batch.
    mean_factor = 1.0 / (micro_batches * size)
    # Every forward pass moves BatchNorm's statistics before it is clear whether the update is applied. If it is not,
    # this copy undoes the moves, so that no NaN stays in them.
    statistics_before = tuple(Parameter(Tensor(p.numpy()), f"before.{p.name}", requires_grad=False) for p in statistics)
    # Some cards give their largest number instead of infinity, and set a status register: cleared before the forward
    # pass (by `clear_overflow`, which returns its input, so that the two stay in order), read after the backward pass.
    ascend = on_ascend() if plan.ascend is None else plan.ascend
    by_operation = ascend and has_clip()
    constants = () if plan.normalise is None else normalisation(plan.normalise)
    compiled = jit or (lambda function: function)

    def scaled_loss(images: Tensor, labels: Tensor, scale: Tensor, *masks: Tensor) -> tuple[Tensor, Tensor]:
        logits = net(images, *masks)
        value = loss(logits, labels)
        # A second metric begins here; docs/design.md, "Where do I change …", lists what else to edit.
        return value * scale, stack_means(value, metric(logits, labels))

    differentiate = mindspore.value_and_grad(scaled_loss, None, trained, has_aux=True)

    def means_and_gradients(images: Tensor, labels: Tensor, *masks: Tensor) -> tuple[Tensor, Gradients]:
        if constants:
            images = normalise(images, constants)
        (_, means), gradients = differentiate(images, labels, scaler.scale, *masks)
        return means, join(gradients)

    def apply(mean_sums: Tensor, gradient_sums: Gradients, flags: Tensor, rate: Tensor) -> Results:
        """Make the update, or skip it. The arguments are sums over this worker's micro-batches."""
        means, gradients = mean_sums * mean_factor, unscale(gradient_sums, mean_factor / scaler.scale)
        # Is this worker finite? Asked before the exchange, after which nobody could say whose NaN it is. Of several
        # workers, each looks only at its first gradient: the backward pass computes it last, from those of all later
        # layers, so their NaN and infinity have spread into it. The full test follows the all-reduce.
        squared = squared_norms(gradients if all_reduce is None else gradients[:1], ascend)
        norm = norm_of(squared)
        local_finite = is_finite(means[0], norm, statistics)
        if ascend:
            local_finite = ops.logical_and(local_finite, no_overflow(gradients))
        report, finite = pack(means, flags, local_finite, one_hot), local_finite
        statistics_mean: Gradients = ()
        if all_reduce is not None:
            gradients, report = all_reduce(gradients), all_reduce((report,))[0]
            squared = squared_norms(gradients, ascend)
            norm = norm_of(squared)
            finite = all_finite(report, norm, size)
            # Not in the branch below: what a card does with a collective in a branch was never tried.
            statistics_mean = mean_over_workers(statistics, 1.0 / size, all_reduce, report)
        # From here on all workers have the same numbers, so they all decide alike.
        complete = none_withheld(report)
        applied = ops.logical_and(finite, complete)
        if applied:  # a tensor: where this is compiled, a branch of the graph
            optimize(clip_by_global_norm(gradients, norm, clip_norm, by_operation), rate)
            if all_reduce is not None:
                assign_tensors(statistics, statistics_mean)
            if averages:
                move_average(averages, *average_arguments)
        else:
            assign_tensors(statistics, statistics_before)
        is_joined = len(gradients) < len(trained)  # then the host sums the elements' squares, by parameter
        squares = ops.square(ops.concat(gradients)) if is_joined else squared
        return report, norm, scaler.adjust(applied, complete), squares  # a plain tuple: see above

    if micro_batches == 1:

        @compiled
        def update(rate: Tensor, flags: Tensor, images: Any, labels: Any, *masks: Any) -> Results:
            assign_tensors(statistics_before, statistics)
            if ascend:
                images = clear_overflow(images, rate)
            return apply(*means_and_gradients(images, labels, *masks), flags, rate)

    else:
        gradient_sums = tuple(
            Parameter(ops.zeros_like(gradient), name=f"sum.{number}", requires_grad=False)
            for number, gradient in enumerate(join(trained))  # for the gradients' shapes, which are the weights'
        )
        mean_sums = Parameter(Tensor(np.zeros(MEANS, np.float32)), name="sum.means", requires_grad=False)

        # `begin` and `add` return a constant, for two reasons. A compiled function that returns nothing loses some of
        # its operations. If it returned a tensor, the next call might wait for that in a busy loop, which takes a core
        # from the kernels. (On a card `begin` must return a tensor: what clears the status register.)
        @compiled
        def begin() -> Tensor | int:
            assign_tensors(statistics_before, statistics)
            map_tensors(_clear, (*gradient_sums, mean_sums))
            return clear_overflow(mean_sums, mean_sums) if ascend else 0

        @compiled
        def add(images: Any, labels: Any, *masks: Any) -> int:
            means, gradients = means_and_gradients(images, labels, *masks)
            _add(mean_sums, means)
            map_tensors(_add, gradient_sums, gradients)
            return 0

        @compiled
        def finish(rate: Tensor, flags: Tensor) -> Results:
            return apply(mean_sums * 1.0, map_tensors(_read, gradient_sums), flags, rate)  # * 1.0: a copy

        def update(rate: Tensor, flags: Tensor, *inputs: Any) -> Results:
            begin()
            for number in range(micro_batches):
                add(*(as_variables(rows(samples, number, micro_batches)) for samples in inputs))
            return finish(rate, flags)

    no_flags = make_flags()
    memory = FixedMemory(() if on_ascend() or jit is None else (*state.weights, *state.training))

    def train_step(
        images: Any, labels: Any, learning_rate: Tensor | float, flags: Tensor | None = None, *masks: Tensor | None
    ) -> StepResult:
        optimizer.attach()  # weights that are parts of vectors share memory with these again, whatever was set since
        memory.check()
        net.set_train(True)  # read when a function is compiled, at its first call
        if not isinstance(learning_rate, Tensor):  # each new plain number would compile the function again
            learning_rate = Tensor(learning_rate, mindspore.float32)
        flags = no_flags if flags is None else flags
        inputs = (as_variables(images), as_variables(labels), *masks)
        packed, grad_norm, scales, squares = update(learning_rate, flags, *inputs)
        return StepResult(packed, grad_norm, scales, squares, size)

    return train_step


def as_variables(samples: Any) -> Any:
    """Mark a tuple as mutable: compiled functions treat the tensors of a plain tuple as constants."""
    return mindspore.mutable(samples) if isinstance(samples, tuple) else samples


def rows(samples: Any, number: int, micro_batches: int) -> Any:
    """Return the rows of micro-batch `number`, from 0, of a tensor or of each in a tuple; None for None."""
    if samples is None:
        return None
    if isinstance(samples, tuple):
        return tuple(rows(tensor, number, micro_batches) for tensor in samples)
    size = samples.shape[0] // micro_batches
    return samples[number * size : (number + 1) * size]


def _clear(buffer: Parameter) -> Tensor:
    return _assign(buffer, ops.zeros_like(buffer))


def _read(buffer: Parameter) -> Tensor:
    return buffer * 1.0  # a copy
