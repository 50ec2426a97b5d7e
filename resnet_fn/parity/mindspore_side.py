"""Train a MindSpore net for a few updates, and record the numbers that are compared with
PyTorch's.
"""

import contextlib
import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

# also the base of mint.optim
from mindspore.experimental.optim.optimizer import Optimizer as TorchLike

from resnet_fn.config.hints import few, first_line
from resnet_fn.config.recipe import Recipe
from resnet_fn.parity.alone import changes_alone, losses_alone, made_up
from resnet_fn.parity.dropout import drops_of, shared_masks
from resnet_fn.parity.environment import environment
from resnet_fn.parity.initial import several_builds
from resnet_fn.parity.layers.cells import record_cell, unchanged, write
from resnet_fn.parity.layers.layer import Layer
from resnet_fn.parity.layers.masked import masked
from resnet_fn.parity.layers.record import leaves, recorded_layers
from resnet_fn.parity.layers.settings import without_dropout
from resnet_fn.parity.name_map import GRADIENTS, NameMap
from resnet_fn.parity.optimizer_settings import (
    DECAY,
    Settings,
    mindspore_settings,
    paired,
    torch_settings,
)
from resnet_fn.parity.probes import Caller, attempted, compute_probes, same_attributes
from resnet_fn.parity.randomness import cut_random, is_random
from resnet_fn.parity.ranks import check_shares
from resnet_fn.parity.stages import LOSS, paired_outputs
from resnet_fn.parity.trace import (
    LATER,
    STATISTICS,
    Arrays,
    Batch,
    Probes,
    Recording,
    Task,
    Trace,
    Tree,
    check_scalar,
    loss_of_logits,
    make_recording,
    map_tree,
    named_leaves,
    parameter_roles,
    split,
    what_failed,
)
from resnet_fn.runtime import process
from resnet_fn.runtime.workers import Reduce, Workers, sum_over_ranks
from resnet_fn.update.average import MovingAverage, make_average
from resnet_fn.update.groups import weight_decay_groups
from resnet_fn.update.loss import make_loss
from resnet_fn.update.loss_scale import make_scaler
from resnet_fn.update.optimizer import make_optimizer
from resnet_fn.update.state import Optimizer, make_state
from resnet_fn.update.step import (
    Compile,
    StepPlan,
    StepResult,
    TrainStep,
    make_train_step,
    no_metric,
)

MakeStep = Callable[..., TrainStep]
Loss = Callable[[Any, Any], Tensor]

_assign = ops.Assign()
_NO_KERNEL = re.compile(
    r"The kernel (\w+) unregistered|kernelmod for op (\w+) failed|Unsupported op \[(\w+)\]|Not "
    r"found op (\w+) on device"
    r"|'(\w+)' is not supported on this device|(\w+) only supports Ascend"
)
_OF_SHAPES = re.compile(
    r"shape|dim|rank|channel|broadcast|size|length|(positional|keyword) argument", re.IGNORECASE
)
_OF_GRAPHS = "The Traceback of Net Construct Code"  # in the errors of MindSpore's compiler


@contextlib.contextmanager
def run_in(mode: str) -> Iterator[None]:
    """If the mode is "pynative", switch MindSpore's compiler off inside a `with` block, even for
    `@jit` functions.
    """
    before = os.environ.get("MS_JIT")  # MindSpore reads it in each call
    if mode == "pynative":
        os.environ["MS_JIT"] = "0"
    try:
        yield
    finally:
        os.environ.pop("MS_JIT", None)
        os.environ.update({} if before is None else {"MS_JIT": before})


def compiler() -> Compile | None:
    """Return `mindspore.jit`, or None if the environment variable MS_JIT=0 switches compiling
    off.
    """
    return None if os.environ.get("MS_JIT") == "0" else mindspore.jit


class Like(NamedTuple):
    """The reference that a net is compared with."""

    recording: Recording  # the reference's recording
    names: NameMap  # maps the net's parameters and layers to the reference's


def record_net(
    net: nn.Cell,
    task: Task,
    *,
    like: Like | None = None,
    loss: Loss | None = None,
    optimizer: Optimizer | nn.Optimizer | TorchLike | None = None,
    schedule: Callable[[int], float] | None = None,
    make_step: MakeStep = make_train_step,
    build: Callable[[], nn.Cell] | None = None,
    workers: Workers = Workers(),
    probes: bool = True,
) -> Recording:
    """Train a net for a few updates without dropout, and record what the comparison with PyTorch
    needs.

    If `like` is given, the net takes over the reference's weights and dropout masks. At the end,
    the net has the weights from before the first update. `loss(outputs, labels)`, `optimizer` and
    `schedule(update)` replace the recipe's loss, optimizer and learning rate. `optimizer` must have
    trainable parameters only. `build` makes the net again, to record the initial values of several
    nets. If `probes` is False, the net is not run on changed inputs.
    """
    check_shares(
        task, workers.size, any(name.endswith(STATISTICS) for name in parameters_by_path(net))
    )
    recipe, initial, inputs = task.recipe, state(net), task.batches[0][0]
    if like:
        assign(net, like.names.rename(like.recording.trace.start))
    start, (first, labels) = state(net), task.first

    @process.ending_mixed_precision()
    def loss_of(outputs: Tree, labels: Tree) -> np.ndarray:
        value = criterion(outputs, map_tree(Tensor, labels))
        check_scalar("the net", value, Tensor)
        return value.numpy()

    def trained() -> Arrays:
        outputs = first_call(net, first, True)
        return {**outputs_of(outputs), LOSS: loss_of(outputs, labels)}

    random_eval, notes = is_random(lambda: outputs_of(first_call(net, inputs))), list[str]()
    cells = dict(net.cells_and_names())
    with without_dropout(cells.items()) as dropped:
        outputs = {"eval": first_call(net, inputs), "train": first_call(net, first, True)}
        of_recipe = make_loss(recipe.label_smoothing, recipe.loss, recipe.smoothing_over)
        criterion = loss or loss_of_logits("the net", outputs["train"], of_recipe)
        layers = {mode: layers_of(net, first, mode == "train") for mode in ("eval", "train")}
        random = layers_of(net, first, True) if is_random(trained) else None
        asked = probes and recipe.precision == "fp32" and not random_eval
        probed = (
            attempted(lambda: _probes(net, first, layers["eval"]), notes, "MindSpore")
            if asked
            else None
        )
    drops = drops_of(
        dropped,
        layers["train"],
        lambda name, ones: outputs_of(first_call(cells[name], ones, True))["logits"],
    )
    # Without micro-batches, masks have the shape of the whole batch, but a worker gets only a part
    # of the batch.
    theirs = (like.recording.dropping, like.names.layers) if like else ()
    masks = (
        {} if task.accumulate % workers.size else shared_masks((drops, layers["train"]), *theirs)
    )
    random_train = cut_random(layers["train"], random) if random is not None else ""
    settings: Settings = {}
    paths = {id(one): path for path, one in parameters_by_path(net).items()}
    if isinstance(optimizer, TorchLike):
        settings = torch_settings(optimizer.param_groups, paths)
    elif isinstance(optimizer, nn.Optimizer):
        settings = mindspore_settings(optimizer, paths)
    own = (
        of_mindspore(optimizer, net)
        if isinstance(optimizer, nn.Optimizer | TorchLike)
        else optimizer
    )
    rates = [schedule(update) for update in range(len(task.batches))] if schedule else task.rates
    alone: dict[str, Arrays] = {}
    with contextlib.suppress(MissingKernelError), explained(inputs):
        alone = optimizer_alone(net, own, like) if own else {}
    with without_dropout(cells.items()), masked(net, masks) as set_masks:
        used, moved = (own, "") if own else _recipe_optimizer(net, recipe, like)
        masking = set_masks if masks else None
        trace = run_mindspore(
            net, task, rates, criterion, used, make_step, outputs, like, masking, workers
        )
        assign(net, start)
        losses: dict[str, float] = {}
        given = like.recording.trace.train_outputs[0] if like else trace.train_outputs[0]
        if loss and not like and workers.size > 1:
            given = _of_all_workers(given, workers, task.accumulate % workers.size > 0)
        if loss and (named := paired_outputs(outputs_of(outputs["train"]), given)):
            given = {named[name]: one for name, one in given.items()}
            losses = losses_alone(loss_of, given, task, outputs["train"], Tensor)
        if masks:
            layers["dropout"] = layers_of(net, first, True)
    trace.settings, trace.alone, trace.losses_alone = settings, alone, losses
    trace.builds = several_builds(build, state, {mindspore: "set_seed"}) if build else []
    mode = "graph" if compiler() else "pynative"
    recording = make_recording(
        f"MindSpore {mindspore.__version__}",
        task,
        lambda array: np.array(Tensor(array).numpy()),
        dropped,
        initial=initial,
        layers=layers,
        trace=trace,
        environment=environment(
            deterministic=process.context("deterministic"), mode=mode, **process.started
        ),
        random_eval=random_eval,
        random_train=random_train,
        drops=drops,
        probes=probed or {},
        **roles_of(net),
    )
    if not trace.after:
        name = type(optimizer).__name__ if optimizer else recipe.optimizer
        notes.append(f"updates are not compared: {name} has no kernel on this device")
    recording.notes += [*notes, moved] if moved else notes
    return recording


def _recipe_optimizer(net: nn.Cell, recipe: Recipe, like: Like | None) -> tuple[Optimizer, str]:
    """Return the recipe's optimizer with the reference's weight decays, and a note if the recipe
    has other decays.
    """
    # The recipe recognises norms by their class. It would decay a norm that is written by hand.
    paths = {id(one): path for path, one in parameters_by_path(net).items()}
    decays = paired(like.recording.trace.settings.get(DECAY, {}), like.names) if like else {}
    own = weight_decay_groups(net, recipe.weight_decay, recipe.decay_all)
    groups = [(parameter, decays.get(paths[id(parameter)], decay)) for parameter, decay in own]
    moved = [
        paths[id(one)]
        for (one, decay), (_, theirs) in zip(own, groups, strict=True)
        if decay != theirs
    ]
    note = f"the weight decay of {few(moved)} is the reference's, not the recipe's" if moved else ""
    return make_optimizer(recipe, net, groups), note


def _probes(net: nn.Cell, inputs: Tree, executions: Sequence[Layer]) -> Probes:
    """Run the net and its layers on probes (changed inputs), uncompiled and in evaluation mode."""
    caller = Caller(
        lambda tensor: tensor.numpy(),
        Tensor,
        outputs_of,
        explained,
        (MissingKernelError, MemoryError),
    )
    net.set_train(False)
    cells = [cell for _, cell in net.cells_and_names()]
    with run_in("pynative"), unchanged(net.get_parameters()), same_attributes(cells):
        return compute_probes(
            [*recorded_layers(net)], lambda tree: call(net, tree), inputs, executions, caller
        )


def layers_of(net: nn.Cell, inputs: Tree, train: bool) -> list[Layer]:
    """Run a net on a batch, and record the inputs and outputs of its layers."""
    return record_cell(net, lambda: call(net, inputs), train)


def roles_of(net: nn.Cell) -> dict[str, Any]:
    """Return which parameters are shared, trained or constant, as fields of a `Recording`."""
    named = list(_all_names(net, ""))
    return parameter_roles(
        named, [name for name, parameter in named if not parameter.requires_grad]
    )


def _all_names(cell: nn.Cell, path: str) -> Iterator[tuple[str, Parameter]]:
    """Yield every path to a parameter below a cell, with the parameter.

    `path` is the path of the cell itself.
    """
    for leaf, parameter in cell.parameters_and_names(expand=False):
        yield f"{path}.{leaf}" if path else leaf, parameter
    for part, inner in cell._cells.items():
        if inner is not None:
            yield from _all_names(inner, f"{path}.{part}" if path else part)


def outputs_of(value: Any) -> Arrays:
    """Return the tensors in a net's outputs as arrays by name.

    A single tensor has the name "logits".
    """
    return {
        name: leaf.numpy()
        for name, leaf in named_leaves(value, "logits").items()
        if isinstance(leaf, Tensor)
    }


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


def _of_all_workers(outputs: Arrays, workers: Workers, whole: bool) -> Arrays:
    """Return the last worker's outputs or, if `whole`, the outputs of the whole batch, as
    `ranks.merge` does.
    """
    merged = {}
    for name, array in outputs.items():
        rows = np.zeros((workers.size, *array.shape), np.float32)
        rows[workers.rank] = array
        rows = sum_over_ranks(rows, workers)
        merged[name] = np.concatenate(rows) if whole and array.ndim else rows[-1]
    return merged


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
) -> Trace:
    """Train a net for a few updates through its compiled step, and record the results. The net's
    weights change.

    `outputs` has the net's outputs by mode: "eval" on the first batch, and "train" on the first
    micro-batch. If `set_masks` is given, the run ends by repeating the first update with dropout
    masks.
    """
    inputs, recipe = task.batches[0][0], task.recipe
    evaluate = _evaluation(net, inputs, outputs["eval"])
    trace = Trace(evaluate(inputs), start=state(net), rates=list(rates))
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
            if like and like.recording.trace.after:
                theirs = like.recording.trace
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

    def on_batch(update: int, step: Any, before: Sequence[tuple[Parameter, np.ndarray]]) -> Trace:
        for parameter, value in before:
            write(parameter, value)
        one = Trace(evaluate(task.batches[update][0]), start=trace.start, rates=[])
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


def optimizer_alone(net: nn.Cell, optimizer: Optimizer, like: Like | None) -> dict[str, Arrays]:
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
            {name: array.shape for name, array in like.recording.trace.gradients.items()}
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


def with_inputs(net: nn.Cell, inputs: Tree) -> Any:
    """Return a function that takes one tuple and calls a net with the tuple's tensors as separate
    inputs.

    The function also has the methods of the net that a training step calls. If `inputs` is one
    array, return the net.
    """
    if not isinstance(inputs, dict | tuple):
        return net
    places, defaults = tuple(range(len(inputs))), (None,) * len(inputs)
    if isinstance(inputs, dict):
        # Keyword arguments in compiled code give gradients of the wrong type, so arguments are
        # passed by position.
        names, parameters = (
            sorted(inputs),
            list(inspect.signature(net.construct).parameters.values()),
        )
        taken = [one.name for one in parameters]
        if missing := [name for name in names if name not in taken]:
            accepted = ", ".join(taken)
            raise ValueError(
                f"net: construct takes {accepted}, but not the input {missing[0]!r}; add it to "
                "construct"
            )
        used = parameters[: 1 + max((taken.index(name) for name in names), default=-1)]
        places = tuple(names.index(one.name) if one.name in names else -1 for one in used)
        defaults = tuple(one.default for one in used)

    def forward(tensors: tuple[Tensor, ...]) -> Any:
        every: tuple[Any, ...] = ()
        for index in range(len(places)):
            every += (tensors[places[index]],) if places[index] >= 0 else (defaults[index],)
        return net(*every)

    for name in (
        "set_train",
        "trainable_params",
        "get_parameters",
        "cells_and_names",
        "parameters_and_names",
    ):
        setattr(forward, name, getattr(net, name))
    return forward


def arguments(inputs: Tree) -> Any:
    """Return inputs as a tensor or a tuple of tensors. The tensors of a dict are sorted by name."""
    return map_tree(
        Tensor,
        tuple(inputs[name] for name in sorted(inputs)) if isinstance(inputs, dict) else inputs,
    )


@process.ending_mixed_precision()
def call(net: nn.Cell, inputs: Tree) -> Any:
    """Return the net's outputs.

    A tuple is passed as positional arguments, a dict as keyword arguments.
    """
    tensors = map_tree(Tensor, inputs)
    if isinstance(tensors, dict):
        return net(**tensors)
    return net(*tensors) if isinstance(tensors, tuple) else net(tensors)


def first_call(net: nn.Cell, inputs: Tree, train: bool = False) -> Any:
    """Return a net's outputs on a batch, and restore the net's mode.

    In training mode, restore the statistics too.
    """
    was_training = net.training
    net.set_train(train)
    try:
        with explained(inputs), unchanged(net.get_parameters() if train else ()):
            outputs = call(net, inputs)
            outputs_of(outputs)  # operations may fail after the call
            return outputs
    finally:
        net.set_train(was_training)


class MissingKernelError(ValueError):
    """Raised if an operation has no kernel on this device."""


@contextlib.contextmanager
def explained(inputs: Tree, compiled: bool = False) -> Iterator[None]:
    """Turn an error inside a `with` block into a ValueError that lists the inputs and suggests a
    fix.
    """
    try:
        with process.ending_mixed_precision():
            yield
    except Exception as error:
        text, fix = str(error), "add --debug to see where it fails"
        shapes = _OF_SHAPES.search(first_line(error)) and not compiled
        if kernel := _NO_KERNEL.search(text):
            device = process.started.get("device", "CPU")
            fix = (
                f"no {device} kernel: {kernel[kernel.lastindex or 0]}; run `parity record` on a "
                "device that has one"
            )
        elif shapes:
            fix = "give the net the inputs that the reference takes"
        elif compiled or _OF_GRAPHS in text:
            fix = (
                "correct what does not compile, or compare the net uncompiled with --mode pynative"
            )
        failed = what_failed("net", inputs, error, fix)
        raise (MissingKernelError(str(failed)) if kernel else failed) from error


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


def parameters_by_path(net: nn.Cell) -> dict[str, Parameter]:
    """Return all parameters and statistics by path. A path may differ from the parameter's name."""
    return dict(net.parameters_and_names())


def state(net: nn.Cell) -> Arrays:
    """Return copies of all parameters and statistics of a net as arrays by path."""
    return {name: parameter.numpy().copy() for name, parameter in parameters_by_path(net).items()}


def assign(net: nn.Cell, values: Mapping[str, np.ndarray]) -> None:
    """Set a net's parameters in place, so that compiled functions use the new values."""
    parameters = parameters_by_path(net)
    for name, value in values.items():
        write(parameters[name], value)
