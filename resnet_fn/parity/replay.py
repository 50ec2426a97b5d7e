"""Compare a MindSpore net with a reference: a torch module (`compare_step`), or a trace of one (`replay`)."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mindspore import nn

from resnet_fn.config.hints import few
from resnet_fn.config.recipe import Recipe
from resnet_fn.parity.alone import given_by
from resnet_fn.parity.dropout import shared_masks
from resnet_fn.parity.ladder import Ladder, compare_recordings
from resnet_fn.parity.matching import Side, fuller_mode, match, shapes_of, side_of
from resnet_fn.parity.mindspore_side import (
    Loss,
    MakeStep,
    assign,
    first_call,
    layers_of,
    parameters_by_path,
    record_net,
    roles_of,
    run_in,
    state,
)
from resnet_fn.parity.name_map import Corrections, NameMap
from resnet_fn.parity.notes import settings_notes
from resnet_fn.parity.optimizer_settings import DECAY, paired
from resnet_fn.parity.stages import WEIGHTS, Stage, inputs_stage
from resnet_fn.parity.trace import Batch, Recording, Task, split
from resnet_fn.parity.trace_folder import load_recording
from resnet_fn.update.groups import weight_decay_groups
from resnet_fn.update.optimizer import make_optimizer
from resnet_fn.update.state import Optimizer
from resnet_fn.update.step import make_train_step

_RATE = 0.01  # small enough that a small batch does not make training chaotic


def replay(
    reference: Recording,
    net: nn.Cell,
    *,
    loss: Loss | None = None,
    optimizer: Optimizer | nn.Optimizer | None = None,
    schedule: Callable[[int], float] | None = None,
    make_step: MakeStep = make_train_step,
    mode: str = "graph",
    initialisation: bool = True,
    build: Callable[[], nn.Cell] | None = None,
    corrections: Corrections | None = None,
    quick: bool = False,
) -> Ladder:
    """Copy the reference's weights into a net, repeat its updates, and compare stage by stage.

    Args:
        reference: the recording of the reference.
        net: it keeps the reference's weights.
        loss: MindSpore's, (outputs, labels) → scalar; None: the recipe's.
        optimizer: made for the net's trainable parameters (`make_optimizer`, or an `nn.Optimizer`); None: the recipe's.
        schedule: the learning rate as a function of the update number; None: the recipe's, as in the reference.
        make_step: a function with the signature of `make_train_step`.
        mode: "graph", or "pynative": nothing is compiled (`run_in`).
        initialisation: compare the distributions of the initial parameters, before copying.
        build: made the net; with it initial parameters are compared by several builds, if the reference has them.
        corrections: of the matching of names (`read_map`).
        quick: compare the batches alone, without probes, and do not search for causes.

    Raises:
        ValueError: inputs or corrections that do not fit the net; the reference has its own loss or optimizer, and no
            MindSpore one is given.
    """
    task = reference.task
    for name, own, ours in (("loss", task.own_loss, loss), ("optimizer", task.own_optimizer, optimizer)):
        if own and ours is None:
            raise ValueError(f"{name}: the reference has its own; give --our-{name} FILE:FUNCTION")
    with run_in(mode):
        names = names_of(net, reference, corrections)
        if names.problems:
            layers = layers_of(net, split(task.batches[0][0], task.accumulate)[0], False)
            notes = settings_notes(layers, reference.layers["eval"], names.layers)  # often why sizes differ
            problems = Stage(WEIGHTS, failed="; ".join(names.problems), hints=[*names.problems, *notes])
            return Ladder([inputs_stage(task.batches, task.batches), problems], [], names, [])
        options: dict[str, Any] = {"loss": loss, "schedule": schedule, "make_step": make_step, "optimizer": optimizer}
        options["probes"] = bool(reference.probes) and not quick
        options["build"] = build if initialisation and reference.trace.builds else None
        recording = record_like(reference, net, names, **options)
    return compare_recordings(recording, reference, names, initialisation, search=not quick)


def record_like(reference: Recording, net: nn.Cell, names: NameMap, **options: Any) -> Recording:
    """Record a net with the reference's weights and weight decays; `options` are those of `record_net`."""
    initial = state(net)
    assign(net, names.rename(reference.trace.start))
    paired, changed = _paired_optimizer(net, reference, names)
    options |= {"initial": initial, "given": given_by(reference.trace, names), "paired": paired}
    options["make_masks"] = partial(shared_masks, theirs=reference.dropping, names=names.layers)
    recording = record_net(net, reference.task, **options)
    recording.notes += [] if options.get("optimizer") else changed
    return recording


def _paired_optimizer(net: nn.Cell, reference: Recording, names: NameMap) -> tuple[Optimizer, list[str]]:
    """The recipe's optimizer with the reference's weight decays, and a note of the changes.

    The recipe decays no norms. It recognises them by class, so a norm written by hand on one side alone is decayed.
    """
    recipe, paths = reference.task.recipe, {id(one): path for path, one in parameters_by_path(net).items()}
    decays = paired(reference.trace.settings.get(DECAY, {}), names)
    own = weight_decay_groups(net, recipe.weight_decay, recipe.decay_all)
    groups = [(parameter, decays.get(paths[id(parameter)], decay)) for parameter, decay in own]
    moved = [paths[id(one)] for (one, decay), (_, theirs) in zip(own, groups, strict=True) if decay != theirs]
    changed = [f"weight decay is the reference's, not the one by the net's layers: {few(moved)}"] if moved else []
    return make_optimizer(recipe, net, groups), changed


def names_of(net: nn.Cell, reference: Recording, corrections: Corrections | None = None) -> NameMap:
    """The reference's parameter and layer for each of a net's."""
    inputs = reference.task.batches[0][0]
    first_call(net, inputs)
    mode, roles = fuller_mode(reference), roles_of(net)
    layers = layers_of(net, split(inputs, reference.task.accumulate)[0], mode == "train")
    ours = Side(shapes_of(state(net)), layers, roles["tied"], roles["constants"])
    return match(ours, side_of(reference, mode), corrections)


def compare_step(
    net: nn.Cell,
    reference: Any,
    batches: Sequence[Batch],
    recipe: Recipe,
    *,
    accumulate: int = 1,
    reference_loss: Callable[[Any, Any], Any] | None = None,
    reference_optimizer: Callable[[Any], Any] | None = None,
    seed: int = 0,
    quick: bool = False,
    **ours: Any,
) -> Ladder:
    """Compare a MindSpore net and the training step around it with a PyTorch module under plain torch code.

    The reference's weights, with random BatchNorm statistics, gamma and beta if they are fresh, are copied into the
    net; both see the same batches. The torch side is the recipe's loss, `clip_grad_norm_` and the recipe's optimizer
    as torch (or its paper) defines it; MindSpore's side is the compiled step.

    Args:
        net: inputs to outputs. It keeps the reference's weights.
        reference: a torch Module that does the same. It is not changed.
        batches: one (inputs, labels) for each update, all of one shape: NumPy arrays [n, …] of any dtype, or tuples
            (positional arguments) or dicts (arguments by name) of them.
        recipe: schedule (compressed into these updates), optimizer, weight decay, clipping, loss, moving average,
            precision.
        accumulate: micro-batches of each update, on both sides.
        reference_loss: torch's, (outputs, labels) → scalar; default the recipe's.
        reference_optimizer: a function of the module that returns a torch optimizer; default the recipe's.
        seed: of the random statistics.
        quick: as in `replay`.
        ours: `loss`, `optimizer`, `schedule`, `make_step`, `mode`, `initialisation`, `build` and `corrections` of
            `replay`.

    Raises:
        ValueError: batches or corrections that do not fit, or a loss that is not a scalar.
    """
    from resnet_fn.parity.torch_side import record_reference

    task = Task(recipe, batches, accumulate, seed, reference_loss is not None, reference_optimizer is not None)
    recording = record_reference(reference, task, reference_loss, reference_optimizer, probes=not quick)
    return replay(recording, net, quick=quick, **ours)


def assert_parity(
    net: nn.Cell, reference: Any, batches: Sequence[Batch] | None = None, recipe: Recipe | None = None, **options: Any
) -> Ladder:
    """Assert, in a test, that a net and its training step compute what PyTorch computes.

    Args:
        net, batches: see `compare_step`.
        reference: a torch Module, or the path of a trace that `parity record` wrote, which has batches and recipe
            (PyTorch is not needed then).
        recipe: see `compare_step`; None: plain SGD with momentum, label smoothing and clipping, at a small rate.
        options: further arguments of `compare_step`, or of `replay` with a trace.

    Returns:
        The ladder.

    Raises:
        AssertionError: they differ, or it is undecided whether they do; its text is the table.
        ValueError: as `compare_step`.
    """
    from resnet_fn.parity.report import table

    if isinstance(reference, str | Path):
        if batches is not None or recipe is not None:
            raise ValueError("batches, recipe: the trace has its own; leave them out")
        ladder = replay(load_recording(Path(reference)), net, **options)
    else:
        if batches is None:
            raise ValueError("batches: are needed beside a module; give one (inputs, labels) for each update")
        ladder = compare_step(net, reference, batches, recipe or Recipe(learning_rate=_RATE), **options)
    if not ladder.agrees:
        words = "the net does not compute" if ladder.first_stage else "it is undecided whether the net computes"
        raise AssertionError(f"{words} what its reference does\n{table(ladder)}")
    return ladder
