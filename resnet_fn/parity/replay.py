"""Compare a MindSpore net with a reference: a torch module (`compare_step`), or a trace of one (`replay`)."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mindspore import nn

from resnet_fn.config.recipe import Recipe
from resnet_fn.parity.ladder import Ladder, compare_recordings
from resnet_fn.parity.matching import Side, fuller_mode, match, shapes_of, side_of
from resnet_fn.parity.mindspore_side import Like, first_call, layers_of, record_net, roles_of, run_in, state
from resnet_fn.parity.name_map import Corrections, NameMap
from resnet_fn.parity.notes import unmatched_notes
from resnet_fn.parity.stages import WEIGHTS, Stage, inputs_stage
from resnet_fn.parity.trace import Batch, Recording, Task
from resnet_fn.parity.trace_folder import load_recording

_RATE = 0.01  # small enough that a small batch does not make training chaotic


def replay(
    reference: Recording,
    net: nn.Cell,
    *,
    mode: str = "graph",
    initialisation: bool = True,
    build: Callable[[], nn.Cell] | None = None,
    corrections: Corrections | None = None,
    quick: bool = False,
    **ours: Any,
) -> Ladder:
    """Copy the reference's weights into a net, repeat its updates, and compare stage by stage.

    Args:
        reference: the recording of the reference.
        net: it keeps the reference's weights.
        mode: "graph", or "pynative": nothing is compiled (`run_in`).
        initialisation: compare the distributions of the initial parameters, before copying.
        build: made the net; with it initial parameters are compared by several builds, if the reference has them.
        corrections: of the matching of names (`read_map`).
        quick: compare the batches alone, without probes, and do not search for causes.
        ours: `loss`, `optimizer`, `schedule` and `make_step` of `record_net`.

    Raises:
        ValueError: inputs or corrections that do not fit the net; the reference has its own loss or optimizer, and no
            MindSpore one is given.
    """
    task = reference.task
    for name, own in (("loss", task.own_loss), ("optimizer", task.own_optimizer)):
        if own and ours.get(name) is None:
            raise ValueError(f"{name}: the reference has its own; give --our-{name} FILE:FUNCTION")
    with run_in(mode):
        names = names_of(net, reference, corrections)
        if names.problems:
            notes = unmatched_notes(layers_of(net, task.first[0], False), reference.layers["eval"])
            problems = Stage(WEIGHTS, failed="; ".join(names.problems), hints=[*names.problems, *notes])
            return Ladder([inputs_stage(task.batches, task.batches), problems], [], names, [])
        ours["build"] = build if initialisation and reference.trace.builds else None
        ours["probes"] = bool(reference.probes) and not quick
        recording = record_net(net, task, like=Like(reference, names), **ours)
    return compare_recordings(recording, reference, names, initialisation, search=not quick)


def names_of(net: nn.Cell, reference: Recording, corrections: Corrections | None = None) -> NameMap:
    """The reference's parameter and layer for each of a net's."""
    task = reference.task
    first_call(net, task.batches[0][0])
    mode, roles = fuller_mode(reference), roles_of(net)
    layers = layers_of(net, task.first[0], mode == "train")
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
        ours: `mode`, `initialisation`, `build` and `corrections` of `replay`; `loss`, `optimizer`, `schedule` and
            `make_step` of `record_net`.

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
