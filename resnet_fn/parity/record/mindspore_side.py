"""Record a MindSpore net."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn

# also the base of mint.optim
from mindspore.experimental.optim.optimizer import Optimizer as TorchLike

from resnet_fn.config.hints import few
from resnet_fn.config.recipe import Recipe
from resnet_fn.parity.compare.optimizer_settings import paired
from resnet_fn.parity.pair.dropouts import shared_masks
from resnet_fn.parity.record.alone import losses_alone
from resnet_fn.parity.record.builds import several_builds
from resnet_fn.parity.record.cells import record_cell, unchanged
from resnet_fn.parity.record.common import (
    check_scalar,
    loss_of_logits,
    make_recording,
    parameter_roles,
)
from resnet_fn.parity.record.dropouts import drops_of
from resnet_fn.parity.record.layer_settings import without_dropout
from resnet_fn.parity.record.layers import recorded_layers
from resnet_fn.parity.record.masked_cells import masked
from resnet_fn.parity.record.mindspore_cell import (
    MissingKernelError,
    assign,
    call,
    compiler,
    explained,
    first_call,
    outputs_of,
    parameters_by_path,
    run_in,
    state,
)
from resnet_fn.parity.record.mindspore_step import (
    Like,
    Loss,
    MakeStep,
    of_mindspore,
    optimizer_alone,
    run_mindspore,
)
from resnet_fn.parity.record.optimizer_settings import mindspore_settings, torch_settings
from resnet_fn.parity.record.probes import Caller, attempted, compute_probes, same_attributes
from resnet_fn.parity.record.randomness import cut_random, is_random
from resnet_fn.parity.trace.data import DECAY, STATISTICS, Probes, Settings, Trace
from resnet_fn.parity.trace.environment import environment
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.plan import Task
from resnet_fn.parity.trace.ranks import check_shares
from resnet_fn.parity.trace.stages import LOSS, ArrayId
from resnet_fn.parity.trace.tree import Arrays, Tree, map_tree, paired_outputs
from resnet_fn.runtime import process
from resnet_fn.runtime.workers import Workers, sum_over_ranks
from resnet_fn.update.groups import weight_decay_groups
from resnet_fn.update.loss import make_loss
from resnet_fn.update.optimizer import make_optimizer
from resnet_fn.update.state import Optimizer
from resnet_fn.update.step import make_train_step


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
) -> Trace:
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
        assign(net, like.names.rename(like.recording.run.start))
    start, (first, labels) = state(net), task.first

    @process.ending_mixed_precision()
    def loss_of(outputs: Tree, labels: Tree) -> np.ndarray:
        value = criterion(outputs, map_tree(Tensor, labels))
        check_scalar("the net", value, Tensor)
        return value.numpy()

    def trained() -> Arrays:
        outputs = first_call(net, first, True)
        return {**outputs_of(outputs), LOSS.name: loss_of(outputs, labels)}

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
    alone: dict[int, Arrays] = {}
    with contextlib.suppress(MissingKernelError), explained(inputs):
        alone = optimizer_alone(net, own, like) if own else {}
    with without_dropout(cells.items()), masked(net, masks) as set_masks:
        used, moved = (own, "") if own else _recipe_optimizer(net, recipe, like)
        masking = set_masks if masks else None
        trace = run_mindspore(
            net, task, rates, criterion, used, make_step, outputs, like, masking, workers
        )
        assign(net, start)
        losses: dict[ArrayId, float] = {}
        given = like.recording.run.train_outputs[0] if like else trace.train_outputs[0]
        if loss and not like and workers.size > 1:
            given = _of_all_workers(given, workers, task.accumulate % workers.size > 0)
        if loss and (named := paired_outputs(outputs_of(outputs["train"]), given)):
            given = {named[name]: one for name, one in given.items()}
            losses = losses_alone(loss_of, given, task, outputs["train"], Tensor)
        if masks:
            layers["dropout"] = layers_of(net, first, True)
    mode = "graph" if compiler() else "pynative"
    recording = make_recording(
        f"MindSpore {mindspore.__version__}",
        task,
        lambda array: np.array(Tensor(array).numpy()),
        dropped,
        initial=initial,
        layers=layers,
        run=trace,
        builds=several_builds(build, state, {mindspore: "set_seed"}) if build else [],
        optimizer_settings=settings,
        optimizer_alone=alone,
        losses_alone=losses,
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
    decays = paired(like.recording.optimizer_settings.get(DECAY, {}), like.names) if like else {}
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
    """Return which parameters are shared, trained or constant, as fields of a `Trace`."""
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
