"""python -m resnet_fn.parity replay and compare: nets against what was recorded before."""

import time
from collections.abc import Sequence
from pathlib import Path

from resnet_fn.config import cli
from resnet_fn.parity.commands.functions import load_functions
from resnet_fn.parity.commands.output import add_output_flags, finish
from resnet_fn.parity.commands.sides import add_map_flag, add_net_flags, build_net, corrections_in, start
from resnet_fn.parity.ladder import compare_recordings
from resnet_fn.parity.matching.match import match
from resnet_fn.parity.traces.folder import load_recording
from resnet_fn.parity.traces.trace import Recording
from resnet_fn.runtime.extras import import_extra

_CODES = "exit code 0: both compute the same; 1: they do not, and the output says where it starts.\n"


def replay_trace(arguments: Sequence[str]) -> int:
    """Hold a MindSpore net against a recorded reference. Returns 1 if they differ."""
    description = "Compare a MindSpore net with a trace that `parity record` wrote; PyTorch need not be installed."
    parser = cli.Parser("parity replay", description, _CODES, "TRACE (--net FILE:FUNCTION | --model NAME)")
    parser.add_argument("trace", metavar="TRACE", help="the folder that was recorded")
    group = parser.add_argument_group("what is compared")
    group.add_argument("--net", metavar="FILE:FUNCTION", help="a function that returns a MindSpore Cell")
    group.add_argument("--model", metavar="NAME", help="a net of this package; default the trace's recipe's")
    add_net_flags(group)
    cli.add_device_flags(parser)
    add_output_flags(parser)
    parsed = parser.parse(arguments)
    cli.refuse((bool(parsed.net) and bool(parsed.model), "--net: give it or --model, not both"))
    functions = load_functions(parsed, ("net", "our_loss", "our_optimizer"))
    if parsed.figure:
        import_extra("matplotlib", "--figure", "plots")
    corrections = corrections_in(parsed)
    began = time.perf_counter()
    reference = load_recording(Path(parsed.trace))
    from resnet_fn.parity.replay import replay

    task = reference.task
    start(parsed, task.seed)
    model = parsed.model or task.recipe.model
    logits = next(iter(reference.trace.eval_outputs.values()))
    net = build_net(functions.get("net"), parsed.net, model, task, logits.shape[-1])
    make_ours = functions.get("our_optimizer")
    ladder = replay(
        reference,
        net,
        loss=functions.get("our_loss"),
        optimizer=make_ours(net) if make_ours else None,
        initialisation=not parsed.no_initialisation and task.recipe.initialisation == "torchvision",
        corrections=corrections,
    )
    print(f"trace of {reference.framework}: {parsed.trace}")
    return finish(parsed, ladder, task, time.perf_counter() - began, f"{parsed.net or model} against {parsed.trace}")


def compare(arguments: Sequence[str]) -> int:
    """Hold two traces against each other. Returns 1 if they differ."""
    parser = cli.Parser(
        "parity compare",
        "Compare two traces of the same task; no framework need be installed.",
        _CODES,
        "TRACE TRACE",
    )
    parser.add_argument("ours", metavar="TRACE", help="what is tested")
    parser.add_argument("reference", metavar="TRACE", help="what it is tested against")
    parser.add_argument("--no-initialisation", action="store_true", help="leave out initialisation")
    add_map_flag(parser.add_argument_group("what is compared"))
    add_output_flags(parser)
    parsed = parser.parse(arguments)
    corrections = corrections_in(parsed)
    began = time.perf_counter()
    ours, theirs = load_recording(Path(parsed.ours)), load_recording(Path(parsed.reference))
    check_same_task(ours, theirs)
    if ours.rounding and not theirs.rounding:
        ours, theirs = theirs, ours
        print(f"only {parsed.ours} knows how far its rounding goes: it is the reference")
    print(f"here {ours.framework}, the reference {theirs.framework}")
    if not theirs.rounding:
        print("neither trace knows how far its rounding goes (PyTorch's do): the tolerances alone decide")
    shapes = [{name: tuple(array.shape) for name, array in side.trace.start.items()} for side in (ours, theirs)]
    names = match(
        shapes[0],
        shapes[1],
        ours.layers["eval"],
        theirs.layers["eval"],
        corrections,
        tied=(ours.tied, theirs.tied),
        constants=(ours.constants, theirs.constants),
    )
    if names.problems:
        raise ValueError(f"compare: the traces are of different nets: {'; '.join(names.problems[:3])}")
    ladder = compare_recordings(ours, theirs, names, not parsed.no_initialisation)
    return finish(parsed, ladder, theirs.task, time.perf_counter() - began, f"{parsed.ours} against {parsed.reference}")


def check_same_task(ours: Recording, theirs: Recording) -> None:
    """Refuse two traces that did not do the same.

    Raises:
        ValueError: what differs.
    """
    a, b = ours.task, theirs.task
    pairs = {f"recipe.{name}": (getattr(a.recipe, name), value) for name, value in vars(b.recipe).items()}
    pairs |= {"updates": (len(a.batches), len(b.batches)), "accumulate": (a.accumulate, b.accumulate)}
    pairs |= {"own loss": (a.own_loss, b.own_loss), "own optimizer": (a.own_optimizer, b.own_optimizer)}
    wrong = [f"{name} {x!r} and {y!r}" for name, (x, y) in pairs.items() if x != y]
    if wrong:
        raise ValueError(f"compare: the traces did not do the same: {', '.join(wrong)}; record one --like the other")
