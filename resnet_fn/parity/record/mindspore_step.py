"""Train a MindSpore net for a few updates through its step, and record what the step computes."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

# also the base of mint.optim
from mindspore.experimental.optim.optimizer import Optimizer as TorchLike

from resnet_fn.parity.pair.name_map import GRADIENTS, NameMap
from resnet_fn.parity.record.alone import changes_alone
from resnet_fn.parity.record.cells import unchanged, write
from resnet_fn.parity.record.mindspore_cell import (
    MissingKernelError,
    arguments,
    assign,
    call,
    compiler,
    explained,
    first_call,
    outputs_of,
    parameters_by_path,
    state,
    with_inputs,
)
from resnet_fn.parity.trace.data import Run, Trace
from resnet_fn.parity.trace.made_up import made_up
from resnet_fn.parity.trace.plan import LATER, Task
from resnet_fn.parity.trace.tree import Arrays, Batch, Tree, leaves, map_tree, named_leaves, split
from resnet_fn.runtime import process
from resnet_fn.runtime.workers import Reduce, Workers
from resnet_fn.update.average import MovingAverage, make_average
from resnet_fn.update.loss_scale import make_scaler
from resnet_fn.update.state import Optimizer, make_state
from resnet_fn.update.step import StepPlan, StepResult, TrainStep, no_metric

MakeStep = Callable[..., TrainStep]

Loss = Callable[[Any, Any], Tensor]

_assign = ops.Assign()


class Like(NamedTuple):
    """The reference that a net is compared with."""

    recording: Trace  # the reference's recording
    names: NameMap  # maps the net's parameters and layers to the reference's


def _evaluation(net: nn.Cell, inputs: Tree, like: Any) -> Callable[[Tree], Arrays]:
    """Return a function that maps inputs to outputs in evaluation mode.

    Outputs must have the structure of `like`.
    """
    forward, jit = with_inputs(net, inputs), compiler()
    keep, kept = output_recorder(like, "eval")

    def recorded(x: Any) -> Any:
        outputs = forward(x)
        keep(outputs)
        return outputs

    step = jit(recorded) if jit else recorded

    def evaluate(inputs: Tree) -> Arrays:
        net.set_train(False)
        with explained(inputs, compiled=jit is not None):
            step(arguments(inputs))
            return kept()

    return evaluate


def run_mindspore(
    net: nn.Cell,
    task: Task,
    rates: Sequence[float],
    loss: Loss,
    optimizer: Optimizer,
    make_step: MakeStep,
    outputs: Mapping[str, Any],
    like: Like | None = None,
    set_masks: Callable[[], None] | None = None,
    workers: Workers = Workers(),
) -> Run:
    """Train a net for a few updates through its compiled step, and record the results. The net's
    weights change.

    `outputs` has the net's outputs by mode: "eval" on the first batch, and "train" on the first
    micro-batch. If `set_masks` is given, the run ends by repeating the first update with dropout
    masks.
    """
    inputs, recipe = task.batches[0][0], task.recipe
    evaluate = _evaluation(net, inputs, outputs["eval"])
    trace = Run(evaluate(inputs), start=state(net), rates=list(rates))
    shapes = {path: one.shape for path, one in parameters_by_path(net).items() if one.requires_grad}
    keep_gradients, gradients = recorder(shapes, "gradient")
    shares = [split(tuple(batch), workers.size)[workers.rank] for batch in task.batches]
    micro_batches, sharing = max(1, task.accumulate // workers.size), dict[str, Any]()
    sent = received = None
    if workers.all_reduce:
        all_reduce, sent, received = recording_reduce(workers.all_reduce, shapes)
        sharing["workers"] = workers._replace(all_reduce=all_reduce)
        outputs = {**outputs, "train": first_call(net, split(shares[0], micro_batches)[0][0], True)}
        with unchanged(net.get_parameters()):
            pairs = [(call(net.set_train(True), x), y) for x, y in split(shares[0], micro_batches)]
            trace.own_losses = [
                float(np.mean([loss(x, map_tree(Tensor, y)).numpy() for x, y in pairs]))
            ]
            trace.own_statistics = {
                path: value for path, value in state(net).items() if path not in shapes
            }
        whole = map_tree(lambda one: one.numpy(), outputs["eval"]), task.batches[0][1]
        # This fails if an output has no sample axis, or exists in training mode only.
        with contextlib.suppress(Exception), process.ending_mixed_precision():
            several = [
                [loss(*map_tree(Tensor, one)).numpy() for one in split(whole, n)]
                for n in (1, workers.size)
            ]
            trace.own_losses += [float(np.mean(losses)) for losses in several]
    keep, kept = output_recorder(outputs["train"], "train")

    def recording_loss(values: Any, targets: Any) -> Tensor:
        keep(values)
        return loss(values, targets).reshape(()).astype(mindspore.float32)

    average = make_average(net, recipe, task.updates_per_epoch)

    def step_with(
        used: Optimizer | None, clip_norm: float, average: MovingAverage | None = None
    ) -> tuple[Any, Any]:
        """Return a training step, and a pair (parameter, value before any update) for each
        parameter of the step.
        """
        scaler = make_scaler(recipe.precision, recipe.loss_scale, recipe.loss_scale_interval)
        update, plan = recording_optimizer(used, keep_gradients), StepPlan(clip_norm, micro_batches)
        run_state = make_state(net, update, scaler, average)
        options: dict[str, Any] = {
            "state": run_state,
            "metric": no_metric,
            "plan": plan,
            "jit": compiler(),
            **sharing,
        }
        before = [(one, one.numpy().copy()) for one in (*run_state.weights, *run_state.training)]
        return make_step(with_inputs(net, inputs), recording_loss, update, **options), before

    # A step without clipping or update records the gradients before clipping.
    unclipped = step_with(None, 0.0) if recipe.clip_norm else None
    step, at_start = step_with(optimizer, recipe.clip_norm, average)
    runs = True
    for update, share in enumerate(shares):
        try:
            result = _call(step, net, share, rates[update])
        except MissingKernelError:  # The net has run before, so the optimizer lacks the kernel.
            step, at_start = step_with(None, recipe.clip_norm)
            result, runs = _call(step, net, share, rates[update]), False
        trace.losses.append(float(result.loss.numpy()))
        trace.norms.append(float(result.grad_norm.numpy()))
        trace.train_outputs.append(kept())
        if update == 0:
            trace.clipped = gradients()
            if sent and received:
                trace.sent, trace.received = sent(), received()
        if not runs:
            break
        if update < LATER:
            trace.after.append(state(net))
        if update + 1 == min(LATER, len(task.batches)):
            # with equal weights, outputs show differences in other state
            if like and like.recording.run.after:
                theirs = like.recording.run
                assign(
                    net,
                    like.names.rename({name: theirs.after[-1][name] for name in theirs.gradients}),
                )
            trace.last_outputs = evaluate(inputs)
            assign(net, trace.after[-1])
    if average is not None and runs:
        averages = {value.name.removeprefix("ema."): value for value in average.averages}
        # A frozen parameter is its own average.
        named = {
            path: averages.get(parameter.name, parameter)
            for path, parameter in parameters_by_path(net).items()
        }
        trace.average = {path: value.numpy().copy() for path, value in named.items()}

    def on_batch(update: int, step: Any, before: Sequence[tuple[Parameter, np.ndarray]]) -> Run:
        for parameter, value in before:
            write(parameter, value)
        one = Run(evaluate(task.batches[update][0]), start=trace.start, rates=[])
        one.losses = [float(_call(step, net, shares[update], rates[0]).loss.numpy())]
        one.train_outputs, one.gradients = [kept()], gradients()
        return one

    # The following steps come after the updates, since a user's step may count its calls.
    by_gradients = unclipped or (step, at_start)
    trace.gradients = on_batch(0, *unclipped).gradients if unclipped else trace.clipped
    trace.later = [on_batch(update, *by_gradients) for update in range(1, len(shares))]
    if set_masks is not None:
        set_masks()
        one = on_batch(0, *by_gradients)
        after = on_batch(0, step, at_start) if unclipped else one
        one.clipped, one.after = after.gradients, [state(net)] if runs else []
        trace.dropped = [one]
    return trace


def optimizer_alone(net: nn.Cell, optimizer: Optimizer, like: Like | None) -> dict[int, Arrays]:
    """Update random weights with random gradients.

    Return weight changes after the first and last update, by path.
    """
    parameters = {
        path: parameter
        for path, parameter in parameters_by_path(net).items()
        if parameter.requires_grad
    }
    weights, gradients = made_up({path: parameter.shape for path, parameter in parameters.items()})
    if like:  # the random numbers of both sides must be equal
        theirs = made_up(
            {name: array.shape for name, array in like.recording.run.gradients.items()}
        )
        for own, given in (
            (weights, like.names.rename(theirs[0])),
            (gradients, like.names.rename(theirs[1], GRADIENTS)),
        ):
            own.update({path: array for path, array in given.items() if path in parameters})

    def update(gradients: Arrays, rate: float) -> None:
        optimizer.update(
            tuple(Tensor(gradients[path]) for path in parameters), Tensor(rate, mindspore.float32)
        )

    with unchanged((*parameters.values(), *optimizer.state)):
        assign(net, weights)
        return changes_alone(
            weights, gradients, update, lambda: {k: one.numpy() for k, one in parameters.items()}
        )


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


def _call(step: TrainStep, net: nn.Cell, batch: Batch, rate: float) -> StepResult:
    inputs, labels = batch
    # compiled code takes no empty tuple
    targets = map_tree(Tensor, labels) if named_leaves(labels, "") else None
    with explained(inputs, compiled=compiler() is not None):
        result = step(arguments(inputs), targets, Tensor(rate, mindspore.float32))
        result.grad_norm.numpy()  # waits for the result: operations may fail after the call
    return result


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


def of_mindspore(optimizer: nn.Optimizer | TorchLike, net: nn.Cell) -> Optimizer:
    """Return an `Optimizer` that calls one of MindSpore's optimizers with the task's learning rate.

    The parameter group with the largest learning rate gets the task's rate. All groups keep the
    ratios of their rates.
    """
    groups = tuple(optimizer.lrs) if isinstance(optimizer, TorchLike) else optimizer.learning_rate
    rates = tuple(dict.fromkeys(groups)) if isinstance(groups, tuple) else (groups,)
    name = type(optimizer).__name__
    if not all(isinstance(rate, Parameter) for rate in rates):
        raise ValueError(
            f"optimizer: {name} has a learning rate schedule; build it with a constant learning "
            "rate"
        )
    places = {id(parameter): index for index, parameter in enumerate(net.trainable_params())}
    if untrained := [
        parameter.name for parameter in optimizer.parameters if id(parameter) not in places
    ]:
        raise ValueError(
            f"optimizer: {name} updates {untrained[0]}, which the net does not train; "
            "build it with net.trainable_params()"
        )
    # Gradients come in the order of the net's parameters. The optimizer's groups may have another
    # order.
    order = tuple(places[id(parameter)] for parameter in optimizer.parameters)
    largest = max(float(rate.numpy()) for rate in rates) or 1.0
    shares = tuple(float(rate.numpy()) / largest for rate in rates)
    others = {*map(id, rates), *map(id, optimizer.parameters)}
    state_ = tuple(
        parameter for parameter in optimizer.get_parameters() if id(parameter) not in others
    )

    def update(gradients: Sequence[Tensor], learning_rate: Tensor) -> None:
        for index in range(len(rates)):
            _assign(rates[index], learning_rate * shares[index])
        arranged: tuple[Tensor, ...] = ()
        for place in order:
            arranged += (gradients[place],)
        optimizer(arranged)

    return Optimizer(state_, update)
