"""The step is a function that makes one update of the weights and of all other state.

Of the following seven steps of an update, the function `apply` makes steps 3 to 7:

    1  copy BatchNorm's moving statistics
    2  compute the scaled loss and its gradients; with micro-batches, add up those of all
       micro-batches
    3  unscale and average the gradients; test whether this worker's loss, BatchNorm statistics and
       gradients are finite (with several workers and not on a card, only the first gradient: step
       4's sums show if others are not finite)
    4  with several workers, all-reduce: sum the gradients, the report and BatchNorm's statistics
       over the workers
    5  decide: apply the update if each worker had samples and passed step 3's test, and the summed
       loss and gradients are finite
    6  if the update is applied: clip by global norm, optimize, set BatchNorm's statistics to their
       mean over workers, update the moving average of the weights and of BatchNorm's statistics;
       if the update is skipped: restore BatchNorm's statistics, which alone have changed, from the
       copy of step 1
    7  adjust the loss scale, unless a worker had no samples; return the results

Collectives: with several workers, an update makes one all-reduce for each gradient, one for the
report, and one for all of BatchNorm's statistics together. The number of all-reduces is the same
for a skipped update and for any number of micro-batches. If a net has no BatchNorm, or only frozen
ones, an update makes one all-reduce fewer. On a CPU, `make_fast_optimizer` joins the gradients of a
small float32 net to a few vectors, if the optimizer is `elementwise` in `OPTIMIZERS` and there is
no moving average. Each vector of gradients has one all-reduce. On a card, without micro-batches,
the gradients' all-reduces may run during the backward pass. With `sync_batchnorm`, a BatchNorm that
is not frozen adds two all-reduces to the forward pass (sums of x, then of squared deviations) and
two to the backward pass. `sync_batchnorm` does not work with micro-batches.

The report is a small vector: the loss, the metric, the number of workers without samples
(`workers_without_samples`), the caller's flags (signals that were received), and which workers
failed the test of step 3. `exchange.py` defines it.

BatchNorm: every forward pass moves the statistics, so K micro-batches move them K times in an
update. Each worker moves the statistics with its own samples (with `sync_batchnorm`, with all
workers' samples). The mean of the statistics over the workers is taken once, at the end of the
update. The statistics of frozen BatchNorms do not change.

Learning rate: an argument of the step. `schedule.py` computes the rate from the update's number.
The optimizer multiplies the rate by each parameter's factor, which `groups.py` computes from
`layer_decay` and `head_lr_factor`.

Checkpoint: `TrainState` (`state.py`) is all that an update passes to the next one, so a checkpoint
must hold all of it.

Compilation: an update is one compiled function. With micro-batches, an update calls the compiled
functions `begin` once, `add` for each micro-batch and `finish` once, so that memory does not grow
with the number of micro-batches.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.data.input_spec import InputSpec
from resnet_fn.models.inputs import normalisation, normalise
from resnet_fn.runtime.workers import Workers
from resnet_fn.update import exchange
from resnet_fn.update.ascend import clear_overflow, no_overflow, on_ascend
from resnet_fn.update.average import move_average
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
from resnet_fn.update.state import (
    FixedMemory,
    Optimizer,
    TrainState,
    make_buffers,
    make_state,
    zeros_like,
)

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
Results = tuple[Tensor, Tensor, Tensor, Tensor]

_assign = ops.Assign()
_add = ops.AssignAdd()
_NOTHING = Tensor(0.0, mindspore.float32)


class StepPlan(NamedTuple):
    """Holds the settings with which an update is computed.

    Attributes:
        clip_norm: largest allowed global norm of the gradients. 0 means no clipping.
        micro_batches: number of parts into which this worker's samples are split.
        normalise: mean and standard deviation for images that arrive as bytes; None for normalised
            images.
        ascend: whether to compile the code for Ascend cards. A CPU can run this code, too. None:
            True only on a card.
    """

    clip_norm: float = 0.0
    micro_batches: int = 1
    normalise: InputSpec | None = None
    ascend: bool | None = None


class StepResult(NamedTuple):
    """The results of an update, as tensors.

    Attributes:
        packed: float32 [3 + k + workers], the report with k flags, summed over the workers.
            `report` names its entries.
        grad_norm: float32 scalar, the global norm of the gradients before clipping.
        scaler: float32 [3]: this update's loss scale, and the loss scaler's new `skipped` and
            `skipped_in_row`.
        squares: float32, the squared norm of each gradient before clipping, in the order of
            `TrainState.trained`. If gradients are joined to vectors, `squares` holds the square of
            each element instead.
        workers: the number of workers that shared the update.
    """

    packed: Tensor
    grad_norm: Tensor
    scaler: Tensor
    squares: Tensor
    workers: int

    @property
    def report(self) -> exchange.Report:
        """Return the entries of `packed` by name."""
        return exchange.unpack(self.packed, self.workers)

    @property
    def loss(self) -> Tensor:
        """Return the mean loss of the whole batch before the update, as a float32 scalar."""
        return self.report.loss

    @property
    def accuracy(self) -> Tensor:
        """Return the mean of the metric (by default the accuracy) over the whole batch, as a
        float32 scalar.
        """
        return self.report.metric


# (images, labels, learning_rate, flags=None, *masks) → StepResult: see `make_train_step`.
TrainStep = Callable[..., StepResult]


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Compute the fraction of samples whose largest logit belongs to the labelled class.

    `labels` are class numbers [N] or soft labels [N, C]. The largest soft label marks the sample's
    class.
    """
    if labels.ndim == 2:
        labels = labels.argmax(1)
    return (logits.argmax(1) == labels).astype(mindspore.float32).mean()


def accuracy_by_class(logits: Tensor, labels: Tensor) -> Tensor:
    """Compute the fraction of correct (sample, class) pairs, for `logits` and `labels` of shape [N,
    C].

    A pair is correct if `logit >= 0` and `label > 0.5` are both true or both false.
    """
    return ((logits >= 0) == (labels > 0.5)).astype(mindspore.float32).mean()


def no_metric(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return 0, in place of a metric, for targets that are not classes."""
    return _NOTHING


# Long: the functions in it share what is compiled; two would be slower (docs/design.md).
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
    """Make the function that computes one update of `net`.

    Args:
        net: maps images to logits.
        loss: a function (logits, labels) → mean loss over the batch.
        optimizer: an optimizer of this package, for example from `momentum_sgd`.
        state: all that an update changes. None means `make_state(net, optimizer)`.
        metric: a function (logits, labels) → a mean over the batch, for example the accuracy.
        workers: the workers that share the update. Several workers need `with_all_reduce(workers)`.
        plan: clipping, micro-batches, normalisation and device.
        jit: the compiling function, by default `mindspore.jit`. If `jit` is None, print and pdb
            work inside the step.

    Returns:
        A function `train_step(images, labels, learning_rate, flags=None, *masks)` that returns a
        `StepResult`. `train_step` sets the net to training mode. `images`, `labels`, `flags` and
        `masks` are this worker's own:

        images: float32 [n, C, H, W], or uint8 with `plan.normalise`. n is a multiple of the number
            of micro-batches. Images may be a tuple of tensors if the net takes one, and labels if
            the loss and the metric take one.
        labels: what `loss` takes, [n] or [n, …].
        learning_rate: a float or a float32 scalar tensor, the same on all workers.
        flags: numbers from `make_flags`, which are summed over the workers.
        masks: masks for dropout and stochastic depth from `make_masks`, each [n, …].

        If a loss, a gradient or a BatchNorm statistic is not finite on any worker, only the loss
        scaler changes. If a worker has no samples, nothing changes.

    Raises:
        ValueError: if `plan` is invalid, or if several workers have no all-reduce. `train_step`
            raises ValueError if the micro-batches cannot be equal, or if on a CPU `set_data` has
            replaced memory that the compiled step reads (`FixedMemory`).
    """
    check_plan(plan, workers)
    state = state or make_state(net, optimizer)
    # Compiled functions cannot read NamedTuples and dataclasses, so everything that they use is
    # unpacked here.
    join = optimizer.join
    optimize = optimizer.update
    all_reduce = workers.all_reduce
    scaler = state.scaler
    trained = state.trained
    statistics = state.statistics
    # `move_average` takes a `MovingAverage`'s fields
    averages, *average_arguments = state.average or ((),)
    size = workers.size
    micro_batches = plan.micro_batches
    clip_norm = plan.clip_norm
    one_hot = Tensor(np.eye(size, dtype=np.float32)[workers.rank])
    # A sum over micro-batches and workers, times this, is the mean over the whole batch.
    mean_factor = 1.0 / (micro_batches * size)
    # A forward pass changes BatchNorm's statistics before it is clear whether the update is
    # applied. If it is skipped, this copy restores them, so that no NaN stays in them.
    statistics_before = make_buffers(statistics, "__before__")
    # Some cards return their largest number instead of infinity, and set a status register. The
    # step clears it before the forward pass and reads it after the backward pass. `clear_overflow`
    # returns its input to keep this order.
    ascend = on_ascend() if plan.ascend is None else plan.ascend
    # MindSpore 2.10 announces the removal
    by_operation = ascend and hasattr(ops, "clip_by_global_norm")
    constants = () if plan.normalise is None else normalisation(plan.normalise)
    compiled = jit or (lambda function: function)

    def scaled_loss(
        images: Tensor, labels: Tensor, scale: Tensor, *masks: Tensor
    ) -> tuple[Tensor, Tensor]:
        logits = net(images, *masks)
        value = loss(logits, labels)
        # A second metric is computed here, by a function that is another argument of
        # `make_train_step`, and passed to `stack_means`. In exchange.py it needs `MEANS` + 1, and
        # an entry in `stack_means`, `Report` and `unpack`, not in `pack`. In this file it needs a
        # property of `StepResult`, in run/build.py the argument, and in run/loop.log_update a line
        # for the log. docs/design.md ("Where do I change …") lists where else to show it.
        return value * scale, exchange.stack_means(value, metric(logits, labels))

    differentiate = mindspore.value_and_grad(scaled_loss, None, trained, has_aux=True)

    def means_and_gradients(
        images: Tensor, labels: Tensor, *masks: Tensor
    ) -> tuple[Tensor, Gradients]:
        if constants:
            images = normalise(images, constants)
        (_, means), gradients = differentiate(images, labels, scaler.scale, *masks)
        return means, join(gradients)

    def apply(mean_sums: Tensor, gradient_sums: Gradients, flags: Tensor, rate: Tensor) -> Results:
        """Make the update, or skip it.

        `mean_sums` and `gradient_sums` are sums over this worker's micro-batches.
        """
        means = mean_sums * mean_factor
        gradients = unscale(gradient_sums, mean_factor / scaler.scale)
        # Are this worker's numbers finite? This is checked before the all-reduce, which spreads a
        # NaN to all workers. Of the gradients, each of several workers checks only the first one.
        # The backward pass computes it last, from those of later layers, so their NaN has usually
        # spread into it. `all_finite` checks the sums of all gradients.
        squared = squared_norms(gradients if all_reduce is None else gradients[:1], ascend)
        norm = norm_of(squared)
        local_finite = is_finite(means[0], norm, statistics)
        if ascend:
            local_finite = ops.logical_and(local_finite, no_overflow(gradients))
        report = exchange.pack(means, flags, local_finite, one_hot)
        finite = local_finite
        statistics_mean: Gradients = ()
        if all_reduce is not None:
            gradients = all_reduce(gradients)
            report = all_reduce((report,))[0]
            squared = squared_norms(gradients, ascend)
            norm = norm_of(squared)
            finite = exchange.all_finite(report, norm, size)
            # This is not in the branch below, because a collective inside a branch was never tried
            # on a card.
            statistics_mean = exchange.mean_over_workers(statistics, 1.0 / size, all_reduce, report)
        # From here on all workers have the same numbers, so all of them decide alike.
        complete = exchange.all_have_samples(report)
        applied = ops.logical_and(finite, complete)
        if applied:  # a tensor: where this is compiled, a branch of the graph
            # docs/design.md: "a change of the gradients before the optimizer, such as noise"
            optimize(clip_by_global_norm(gradients, norm, clip_norm, by_operation), rate)
            if all_reduce is not None:
                assign_tensors(statistics, statistics_mean)
            if averages:
                move_average(averages, *average_arguments)
        else:
            assign_tensors(statistics, statistics_before)
        # if so, telemetry/norms.py sums the squares of each parameter
        is_joined = len(gradients) < len(trained)
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
        # Joined weights have the shapes of joined gradients.
        gradient_sums = tuple(
            zeros_like(gradient, f"__sum__.{number}")
            for number, gradient in enumerate(join(trained))
        )
        mean_sums = Parameter(
            Tensor(np.zeros(exchange.MEANS, np.float32)),
            name="__sum__.means",
            requires_grad=False,
        )

        # `begin` and `add` return a constant. A compiled function that returns nothing loses some
        # of its operations. After one that returns a tensor, the next call may wait for that tensor
        # in a busy loop, which takes a core from the kernels. On a card `begin` must return a
        # tensor, so that the status register is cleared.
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
            # * 1.0: a copy
            return apply(mean_sums * 1.0, map_tensors(_read, gradient_sums), flags, rate)

        def update(rate: Tensor, flags: Tensor, *inputs: Any) -> Results:
            begin()
            for number in range(micro_batches):
                add(*(as_variables(rows(samples, number, micro_batches)) for samples in inputs))
            return finish(rate, flags)

    no_flags = exchange.make_flags()
    memory = FixedMemory(() if on_ascend() or jit is None else (*state.weights, *state.training))

    def train_step(
        images: Any,
        labels: Any,
        learning_rate: Tensor | float,
        flags: Tensor | None = None,
        *masks: Tensor | None,
    ) -> StepResult:
        # weights share their memory with the joined vectors again, if `set_data` has replaced it
        optimizer.attach()
        memory.check()
        net.set_train(True)  # matters when a function is compiled, at its first call
        # each new Python number would compile the function again
        if not isinstance(learning_rate, Tensor):
            learning_rate = Tensor(learning_rate, mindspore.float32)
        flags = no_flags if flags is None else flags
        inputs = (as_variables(images), as_variables(labels), *masks)
        packed, grad_norm, scales, squares = update(learning_rate, flags, *inputs)
        return StepResult(packed, grad_norm, scales, squares, size)

    return train_step


def check_plan(plan: StepPlan, workers: Workers) -> None:
    """Raise ValueError if a setting is out of range, or if workers would train apart."""
    if not plan.clip_norm >= 0:  # NaN, too
        raise ValueError(
            f"clip_norm: {plan.clip_norm} is below 0; give a norm, or 0 for no clipping"
        )
    if plan.micro_batches < 1:
        raise ValueError(f"micro_batches: {plan.micro_batches} is too small; give 1 or more")
    if workers.size > 1 and workers.all_reduce is None:
        each = f"each of the {workers.size} workers would train alone"
        raise ValueError(f"workers: all_reduce is None, so {each}; give with_all_reduce(workers)")


def as_variables(samples: Any) -> Any:
    """Mark a tuple as mutable, because compiled functions treat the tensors of a plain tuple as
    constants.
    """
    return mindspore.mutable(samples) if isinstance(samples, tuple) else samples


def rows(samples: Any, number: int, micro_batches: int) -> Any:
    """Return the rows of micro-batch `number`, counted from 0, of a tensor or of each tensor in a
    tuple.
    """
    if samples is None:
        return None
    if isinstance(samples, tuple):
        return tuple(rows(tensor, number, micro_batches) for tensor in samples)
    size, rest = divmod(samples.shape[0], micro_batches)
    if rest:
        fix = f"give a multiple of {micro_batches}"
        raise ValueError(
            f"micro_batches: {samples.shape[0]} samples do not make {micro_batches} equal parts; "
            f"{fix}"
        )
    return samples[number * size : (number + 1) * size]


def _clear(buffer: Parameter) -> Tensor:
    return _assign(buffer, ops.zeros_like(buffer))


def _read(buffer: Parameter) -> Tensor:
    return buffer * 1.0  # a copy
