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
        net: the net; afterwards it has the reference's weights.
        mode: "graph", or "pynative", in which nothing is compiled (`run_in`).
        initialisation: whether to compare the distributions of the initial parameters, before they are replaced.
        build: the function that made the net; if it is given, several builds are compared, if the reference has them.
        corrections: the user's pairs of names (`read_map`).
        quick: whether to compare the batches only, without probes and without a search for causes.
        ours: `loss`, `optimizer`, `schedule` and `make_step` of `record_net`.

    Raises:
        ValueError: inputs or corrections do not fit the net, or the reference has its own loss or optimizer and
            MindSpore's is missing.
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
    """The pairing of a net's parameters and layers with those of a reference's recording."""
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
    """Compare a MindSpore net and its training step with a PyTorch module and a plain PyTorch training loop.

    Untrained BatchNorms of the reference get random statistics, gamma and beta; then the reference's weights are copied
    into the net. Both sides use the same batches. PyTorch's side is the recipe's loss, `clip_grad_norm_` and the
    recipe's optimizer as in torch (or its paper); MindSpore's side is the compiled step.

    Args:
        net: the MindSpore net; afterwards it has the reference's weights.
        reference: a torch Module, from which the net was ported. It is not changed.
        batches: one (inputs, labels) for each update, all of one shape: NumPy arrays [n, …] of any dtype, or tuples
            (positional arguments) or dicts (arguments by name) of them.
        recipe: schedule (compressed into these updates), optimizer, weight decay, clipping, loss, moving average,
            precision.
        accumulate: micro-batches of each update, on both sides.
        reference_loss: PyTorch's loss, (outputs, labels) → scalar; default the recipe's.
        reference_optimizer: a function of the module that returns a torch optimizer; default the recipe's.
        seed: the seed of the random statistics.
        quick: as in `replay`.
        ours: `mode`, `initialisation`, `build` and `corrections` of `replay`; `loss`, `optimizer`, `schedule` and
            `make_step` of `record_net`.

    Raises:
        ValueError: batches or corrections do not fit, or a loss is not a scalar.
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
        reference: a torch Module, or the path of a trace that `parity record` wrote. A trace has batches and recipe,
            and does not need PyTorch.
        recipe: see `compare_step`; None: plain SGD with momentum, label smoothing and clipping, at a small rate.
        options: further arguments of `compare_step`, or of `replay` with a trace.

    Returns:
        The ladder.

    Raises:
        AssertionError: they differ, or it is undecided whether they do; the error's text is the table.
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
