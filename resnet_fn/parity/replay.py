"""Compare a MindSpore net with a torch module (`compare_step`), or with the recording of a torch
module (`replay`).
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mindspore import nn

from resnet_fn.config.recipe import Recipe
from resnet_fn.parity.compare.inputs import Inputs
from resnet_fn.parity.compare.notes import unmatched_notes
from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.ladder import Ladder, compare_recordings
from resnet_fn.parity.pair.like import like_of
from resnet_fn.parity.pair.map_file import Corrections
from resnet_fn.parity.pair.matching import Outline, fuller_mode, match, outline_of, shapes_of
from resnet_fn.parity.pair.name_map import NameMap
from resnet_fn.parity.plan import plan_of
from resnet_fn.parity.record.mindspore_cell import check_mode, run_in
from resnet_fn.parity.record.mindspore_side import MindSporeSide
from resnet_fn.parity.record.mindspore_source import MindSporeSource
from resnet_fn.parity.record.record import record
from resnet_fn.parity.trace.data import Trace
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.small_file import load_trace
from resnet_fn.parity.trace.source import Recorded, StoredSource
from resnet_fn.parity.trace.stages import WEIGHTS
from resnet_fn.parity.trace.tree import Batch

_PROBLEMS = 6  # so many unpaired arrays are listed before advice: only some hints are printed

_RATE = 0.01  # small enough that a small batch does not make training chaotic


def replay(
    recorded: Recorded,
    net: nn.Cell,
    *,
    mode: str = "graph",
    initialisation: bool = True,
    build: Callable[[], nn.Cell] | None = None,
    corrections: Corrections | None = None,
    quick: bool = False,
    **options: Any,
) -> Ladder:
    """Copy the recorded reference's weights into a net, repeat the reference's updates, and compare
    stage by stage.

    `mode` is "graph", or "pynative" to compile nothing. `corrections` pairs parameters and layers
    by hand. `options` has `MindSporeSide`'s arguments `loss`, `optimizer`, `schedule` and
    `make_step`. `quick` leaves out probes (runs on changed inputs) and the search for causes. If
    `initialisation` is False, initial parameters are not compared. `build` makes the net again, to
    compare the initial parameters of several nets. Afterwards, the net has the reference's weights.
    """
    reference, source = recorded
    plan = reference.plan
    check_own_functions(plan, options, "our-")
    options["build"] = build if initialisation and reference.builds else None
    side = MindSporeSide(net, plan, **options)
    with run_in(mode):
        names = names_of(side, reference, corrections)
        if names.problems:
            notes = unmatched_notes(side.layers("eval"), reference.layers["eval"])
            problems = Stage(
                WEIGHTS,
                failed="; ".join(names.problems),
                hints=[
                    *names.problems[:_PROBLEMS],
                    *names.advice,
                    *names.problems[_PROBLEMS:],
                    *notes,
                ],
            )
            return Ladder(
                [Inputs().compare(plan.batches, plan.batches), problems],
                [],
                names,
                [],
                compiled=mode != "pynative",
                measured=bool(reference.rounding),
            )
        like = like_of(reference, names, options.get("optimizer") is not None)
        port = record(side, like, bool(reference.probes) and not quick).trace
    again = None if quick else MindSporeSource(side, like, port)
    return compare_recordings(port, reference, names, initialisation, not quick, source, again)


def check_own_functions(plan: Plan, given: Mapping[str, Any], prefix: str = "") -> None:
    """Raise ValueError if the reference has its own loss or optimizer, and none is given.

    `prefix` is that of the flag that gives one.
    """
    for name, own in (("loss", plan.loss.custom), ("optimizer", plan.optimizer.custom)):
        if own and given.get(name) is None:
            raise ValueError(
                f"{name}: the reference has its own {name}; give yours with --{prefix}{name} "
                "FILE:FUNCTION"
            )


def names_of(
    port: MindSporeSide, reference: Trace, corrections: Corrections | None = None
) -> NameMap:
    """Pair the port's parameters and layers with the reference's."""
    port.forward(port.plan.batches[0][0], train=False)  # explains why the net fails, if it does
    mode, roles = fuller_mode(reference), port.roles()
    layers = port.layers(mode)
    shapes, attributes = shapes_of(port.state()), shapes_of(roles["attributes"])
    arrays = Outline(shapes, layers, roles["tied"], roles["constants"], attributes=attributes)
    return match(arrays, outline_of(reference, mode), corrections)


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
    **options: Any,
) -> Ladder:
    """Compare a MindSpore net and its training step with a PyTorch module and a plain PyTorch
    training loop.

    Both sides start with the reference's weights and use the same batches. PyTorch's side uses the
    recipe's loss and optimizer, and `clip_grad_norm_`. LARS and LAMB follow their papers.
    MindSpore's side uses the compiled training step. The reference's untrained BatchNorm statistics
    are first randomised. Trained parameters whose numbers are all equal, such as gamma, are
    randomised too.

    Args:
        net: the MindSpore net. Afterwards the net has the reference's weights.
        reference: the torch module from which the net was ported. A copy is trained, so the module
            keeps its weights.
        batches: one pair (inputs, labels) for each update, all of the same shapes. Inputs and
            labels are NumPy arrays [n, …] of float32, integers or bool. A tuple of arrays gives
            positional arguments, a dict keyword arguments.
        recipe: the settings of training, such as loss and optimizer. The whole schedule is
            compressed into the updates. A moving average has no warm-up (`ema_warmup`).
        accumulate: the number of micro-batches in each update, on both sides.
        reference_loss: PyTorch's loss, a function (outputs, labels) → scalar. The default is the
            recipe's loss.
        reference_optimizer: a function of the module that returns a torch optimizer; by default the
            recipe's.
        seed: the seed of the random statistics and parameters.
        quick: whether to leave out probes (runs on changed inputs) and the search for causes.
        options: further arguments for MindSpore's side. `mode` is "graph", or "pynative" to compile
            nothing. `loss`, `optimizer` and `schedule` (update number → learning rate) replace
            those of the recipe. `make_step` replaces `make_train_step`. `initialisation=False`
            leaves initial parameters out of the comparison. `corrections` pairs names of parameters
            and layers by hand.

    Returns:
        The ladder, which has the result of each stage and the verdict.

    Raises:
        ValueError: an argument is wrong, a net fails on its inputs, or a loss is not a scalar.
    """
    from resnet_fn.parity.record.torch_side import TorchSide

    check_mode(options.get("mode", "graph"))  # before the reference is recorded
    plan = plan_of(
        recipe,
        batches,
        accumulate,
        seed,
        reference_loss is not None,
        reference_optimizer is not None,
    )
    side = TorchSide(reference, plan, reference_loss, reference_optimizer)
    recorded = record(side, probes=not quick)
    return replay(recorded, net, quick=quick, **options)


def assert_parity(
    net: nn.Cell,
    reference: Any,
    batches: Sequence[Batch] | None = None,
    recipe: Recipe | None = None,
    **options: Any,
) -> Ladder:
    """Check in a test that a net and its training step compute what PyTorch computes.

    Args:
        net: the MindSpore net. Afterwards the net has the reference's weights.
        reference: a torch module, or the path of a trace (a recording that `parity record` wrote).
            A trace does not need PyTorch.
        batches: as in `compare_step`. Leave `batches` and `recipe` out for a trace, which has its
            own.
        recipe: as in `compare_step`; by default `Recipe(learning_rate=0.01)`.
        options: further arguments of `compare_step`, or of `replay` for a trace.

    Returns:
        The ladder, which has the result of each stage and the verdict.

    Raises:
        AssertionError: the two sides differ, or the verdict is undecided. The message contains the
            table of stages.
        ValueError: as in `compare_step`.
    """
    from resnet_fn.parity.show.table import table

    if isinstance(reference, str | Path):
        if batches is not None or recipe is not None:
            raise ValueError(
                "batches, recipe: a trace has its own batches and recipe; leave both out"
            )
        trace = load_trace(Path(reference))
        ladder = replay(Recorded(trace, StoredSource(trace)), net, **options)
    else:
        if batches is None:
            raise ValueError(
                "batches: a torch module needs batches; give one pair (inputs, labels) for each "
                "update"
            )
        ladder = compare_step(
            net, reference, batches, recipe or Recipe(learning_rate=_RATE), **options
        )
    if not ladder.agrees:
        differs = "differs" if ladder.first_stage else "may differ"
        raise AssertionError(
            f"the net {differs} from the reference, as the table shows\n{table(ladder)}"
        )
    return ladder
