"""The commands of the ladder: both frameworks in one process, `record`, `replay` and `compare`."""

import argparse
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from resnet_fn.config import cli
from resnet_fn.parity import flags
from resnet_fn.parity.layers.record import leaves
from resnet_fn.parity.name_map import Corrections, read_map
from resnet_fn.parity.trace import Arrays, Recording, Task
from resnet_fn.parity.trace_folder import load_recording, save_recording
from resnet_fn.parity.user_files import imports_beside
from resnet_fn.runtime.disk import sha256_of_file
from resnet_fn.runtime.extras import import_extra

_LIVE = """examples:
  python -m resnet_fn.parity --model resnet50 --image-size 64 --batch-size 4 --steps 5
  python -m resnet_fn.parity --model resnet8 --steps 20 --json ladder.json --report out
  python -m resnet_fn.parity --reference torch_net.py:build --net ported.py:build --optimizer adamw

with PyTorch on one machine and MindSpore on another (each has a --help):
  python -m resnet_fn.parity record --reference torch_net.py:build --out trace
  python -m resnet_fn.parity replay trace --net ported.py:build
  python -m resnet_fn.parity compare trace-a trace-b

"""
_RECORD = """examples:
  python -m resnet_fn.parity record --reference torch_net.py:build --inputs data.py:batches --out trace
  python -m resnet_fn.parity record --net ported.py:build --out trace-a
  python -m resnet_fn.parity record --net ported.py:build --like trace-a --out trace-b

PyTorch's side needs NumPy and PyTorch only; MindSpore's does not need PyTorch.
"""
_CODES = "exit code 0: both compute the same; 1: they differ, or it is undecided; the output names the place.\n"
_FLAGS = {
    "model": ("NAME", "a net of this package"),
    "net": ("FILE:FUNCTION", "a function that returns a MindSpore Cell"),
    "reference": ("FILE:FUNCTION", "a function that returns a torch Module"),
    "our-loss": ("FILE:FUNCTION", "MindSpore's, of (outputs, labels)"),
    "our-optimizer": ("FILE:FUNCTION", "of the net: returns an optimizer of MindSpore's or of this package"),
    "our-step": ("FILE:FUNCTION", "as `make_train_step`: returns a step of one's own"),
    "map": ("FILE", "a JSON of {ours: the reference's} that corrects the matching (docs/parity.md)"),
    "like": ("TRACE", "with --net: the task and the weights of another trace"),
    "json": ("FILE", "write everything, every array and layer"),
}


def _add(group: argparse._ArgumentGroup, *names: str, **more: str) -> None:
    """Add flags of `_FLAGS`; `more` is appended to the help of one."""
    for name in names:
        metavar, meaning = _FLAGS[name]
        group.add_argument(f"--{name}", metavar=metavar, help=meaning + more.get(name, ""))


def _add_comparison(parser: cli.Parser, group: argparse._ArgumentGroup) -> None:
    """The flags of every comparison, and those of the files that it writes."""
    _add(group, "map")
    trained = "leave out initialisation (nets that load trained weights)"
    group.add_argument("--no-initialisation", action="store_true", help=trained)
    strict = "exit code 1 also for arrays that differ beyond rounding, within their tolerance"
    group.add_argument("--strict", action="store_true", help=strict)
    group = parser.add_argument_group("what is written")
    _add(group, "json")
    words = "write parity.html there: verdict, stages, each layer's error, loss curves (plots need matplotlib)"
    group.add_argument("--report", type=cli.folder_to_write, metavar="DIR", help=words)


def _add_device(parser: cli.Parser) -> None:
    """The flags of MindSpore's side."""
    group, words = cli.add_device_flags(parser), "an update as one compiled function, or as none; default graph"
    group.add_argument("--mode", choices=("graph", "pynative"), default="graph", help=words)


def live(arguments: Sequence[str]) -> int:
    """Compare both nets in this process. Returns 1 if they differ."""
    recipe = flags.recipe_named_in(list(arguments))
    description = "Compare a net and one training step with PyTorch, stage by stage."
    parser = cli.Parser("parity", description, _LIVE + _CODES, "")
    group = parser.add_argument_group("what is compared")
    default = {"model": f"; default the recipe's, {recipe.model}", "reference": "; default --model in PyTorch"}
    _add(group, "model", "net", "reference", "our-loss", "our-optimizer", "our-step", **default)
    flags.add_task_flags(parser, recipe)
    _add_device(parser)
    _add_comparison(parser, group)
    parsed = parser.parse(arguments)
    alone = [name for name in flags.own_functions(parsed) if not getattr(parsed, f"our_{name}")]
    torch_net = "the torch module that it was ported from"
    cli.refuse(
        (parsed.net and not parsed.reference, f"--net: needs --reference FILE:FUNCTION, {torch_net}"),
        (parsed.net and parsed.model, "--net: give it or --model, not both"),
        (parsed.inputs and not parsed.net, "--inputs: goes with --net and --reference"),
        *((True, f"--{name}: needs --our-{name} FILE:FUNCTION, MindSpore's side of it") for name in alone),
    )
    task = flags.task_of(parsed)
    functions, corrections = flags.load_functions(parsed), corrections_in(parsed)
    torch = import_extra("torch", "the parity ladder")
    from resnet_fn.parity.torch_side import record_reference
    from resnet_fn.runtime.cpus import cpu_count

    began = time.perf_counter()
    _start(parsed, task.seed)
    torch.manual_seed(task.seed)
    # Two pools of threads that spin for the same cores slow each other down tenfold; torch's work is the smaller.
    torch.set_num_threads(max(1, cpu_count() // 2))
    with imports_beside(parsed.reference, parsed.loss, parsed.optimizer):
        reference = _reference(parsed, functions, task)
    with _our_imports(parsed):
        build = partial(_build_net, parsed, functions, task, flags.image_shape(parsed, task.recipe)[1])
        net = build()
    with imports_beside(parsed.reference, parsed.loss, parsed.optimizer):
        recording = record_reference(reference, task, functions.get("loss"), functions.get("optimizer"))
        if _initialisation(parsed.no_initialisation, task):
            recording.trace.builds = _reference_builds(parsed, functions, task)
    with _our_imports(parsed):
        ladder = _replay(parsed, functions, recording, net, build, corrections)
    title = f"{parsed.net or parsed.model or task.recipe.model} against {parsed.reference or 'PyTorch'}"
    return _finish(parsed, ladder, task, began, title)


def record(arguments: Sequence[str]) -> int:
    """Record one side, with only its own framework installed."""
    recipe = flags.recipe_named_in(list(arguments))
    parser = cli.Parser("parity record", "Record what a net computes in a few updates.", _RECORD, "--out FOLDER")
    group = parser.add_argument_group("what is recorded")
    _add(group, "reference", "net", "model", "like", model=f", in PyTorch; default the recipe's, {recipe.model}")
    flags.add_task_flags(parser, recipe)
    _add_device(parser)
    group = parser.add_argument_group("what is written")
    group.add_argument("--out", metavar="FOLDER", help="a new folder")
    layers = "none: without the layers' outputs: the first that differs is not named, and nets must agree in names"
    group.add_argument("--layers", choices=("all", "none"), default="all", help=layers)
    parsed = parser.parse(arguments)
    given, own = flags.task_flags_in(parsed), parsed.net or parsed.reference
    cli.refuse(
        (not parsed.out, "--out: needs a folder to write; give --out trace"),
        (parsed.net and parsed.reference, "--net: give it or --reference, not both"),
        (own and parsed.model, "--model: give it or a function, not both"),
        (parsed.like and not parsed.net, "--like: goes with --net; a reference is recorded from its flags"),
        (parsed.like and given, f"--like: the trace has its own task; leave out {', '.join(given)}"),
        (parsed.inputs and not own, "--inputs: goes with --reference or --net"),
    )
    began = time.perf_counter()
    functions = flags.load_functions(parsed)
    like = load_recording(Path(parsed.like)) if parsed.like else None
    task = like.task if like else flags.task_of(parsed)
    with imports_beside(own, parsed.loss, parsed.optimizer):
        recording = _of_net(parsed, task, functions, like) if parsed.net else _of_reference(parsed, task, functions)
    if own:
        path = Path(own.rpartition(":")[0])
        recording.file = f"{path.name}, SHA-256 {sha256_of_file(path)}"
    size = save_recording(recording, Path(parsed.out), parsed.layers)
    print(
        f"{parsed.out}: {recording.framework}, {len(task.batches)} updates with {task.recipe.optimizer}, "
        f"{len(recording.layers['eval'])} layers, {size / 1e6:.1f} MB, {time.perf_counter() - began:.0f} s"
    )
    print("".join(f"{note}\n" for note in recording.notes), end="")
    return 0


def _of_reference(parsed: argparse.Namespace, task: Task, functions: dict[str, Any]) -> Recording:
    torch = import_extra("torch", "recording a reference")
    from resnet_fn.parity.torch_side import record_reference
    from resnet_fn.runtime.malloc import keep_freed

    keep_freed()
    torch.manual_seed(task.seed)
    if parsed.threads:
        torch.set_num_threads(parsed.threads)
    reference = _reference(parsed, functions, task)
    recording = record_reference(reference, task, functions.get("loss"), functions.get("optimizer"))
    if _initialisation(False, task):
        recording.trace.builds = _reference_builds(parsed, functions, task)
    return recording


def _reference_builds(parsed: argparse.Namespace, functions: dict[str, Any], task: Task) -> list[Arrays]:
    import torch

    from resnet_fn.parity.initial import several_builds
    from resnet_fn.parity.torch_side import initialise, state

    def values(module: Any) -> Arrays:
        initialise(module, task.batches[0][0])
        return state(module)

    return several_builds(partial(_reference, parsed, functions, task), values, {torch: "manual_seed"})


def _of_net(parsed: argparse.Namespace, task: Task, functions: dict[str, Any], like: Recording | None) -> Recording:
    import mindspore

    from resnet_fn.parity.alone import given_by
    from resnet_fn.parity.dropout import shared_masks
    from resnet_fn.parity.initial import several_builds
    from resnet_fn.parity.mindspore_side import assign, record_net, run_in, state
    from resnet_fn.parity.replay import names_of, paired_optimizer

    _start(parsed, task.seed)
    net = _build_net(parsed, functions, task, 0)
    make_ours, initial = functions.get("optimizer"), state(net)
    options: dict[str, Any] = {"optimizer": make_ours(net) if make_ours else None, "loss": functions.get("loss")}
    with run_in(parsed.mode):
        if like is not None:
            names = names_of(net, like)
            if names.problems:
                raise ValueError(f"--like: {parsed.like} is of another net: {'; '.join(names.problems[:3])}")
            assign(net, names.rename(like.trace.start))
            options |= {"paired": paired_optimizer(net, like, names)[0], "given": given_by(like.trace, names)}
            options["make_masks"] = partial(shared_masks, theirs=like.dropping, names=names.layers)
        recording = record_net(net, task, initial=initial, **options)
    if _initialisation(False, task):
        build = partial(_build_net, parsed, functions, task, 0)
        recording.trace.builds = several_builds(build, state, {mindspore: "set_seed"})
    return recording


def replay_trace(arguments: Sequence[str]) -> int:
    """Compare a MindSpore net with a recorded reference. Returns 1 if they differ."""
    description = "Compare a MindSpore net with a trace that `parity record` wrote; PyTorch need not be installed."
    parser = cli.Parser("parity replay", description, _CODES, "TRACE (--net FILE:FUNCTION | --model NAME)")
    parser.add_argument("trace", metavar="TRACE", help="the folder that was recorded")
    group = parser.add_argument_group("what is compared")
    _add(group, "model", "net", "our-loss", "our-optimizer", "our-step", model="; default the trace's recipe's")
    _add_device(parser)
    _add_comparison(parser, group)
    parsed = parser.parse(arguments)
    cli.refuse((parsed.net and parsed.model, "--net: give it or --model, not both"))
    functions, corrections = flags.load_functions(parsed), corrections_in(parsed)
    began = time.perf_counter()
    reference = load_recording(Path(parsed.trace))
    task = reference.task
    _start(parsed, task.seed)
    logits = next(iter(reference.trace.eval_outputs.values()))
    with _our_imports(parsed):
        build = partial(_build_net, parsed, functions, task, logits.shape[-1])
        ladder = _replay(parsed, functions, reference, build(), build, corrections)
    print(f"trace of {reference.framework}: {parsed.trace}" + f" ({reference.file})" * bool(reference.file))
    title = f"{parsed.net or parsed.model or task.recipe.model} against {parsed.trace}"
    return _finish(parsed, ladder, task, began, title, ladder.environment)


def compare(arguments: Sequence[str]) -> int:
    """Compare two traces; no framework need be installed. Returns 1 if they differ."""
    description = "Compare two traces of the same task; no framework need be installed."
    parser = cli.Parser("parity compare", description, _CODES, "TRACE TRACE")
    parser.add_argument("ours", metavar="TRACE", help="the trace that is tested")
    parser.add_argument("reference", metavar="TRACE", help="the trace that it is compared with")
    _add_comparison(parser, parser.add_argument_group("what is compared"))
    parsed = parser.parse(arguments)
    corrections = corrections_in(parsed)
    began = time.perf_counter()
    from resnet_fn.parity.ladder import compare_recordings
    from resnet_fn.parity.matching import fuller_mode, match, side_of

    ours, theirs = load_recording(Path(parsed.ours)), load_recording(Path(parsed.reference))
    _check_same_task(ours, theirs)
    if ours.rounding and not theirs.rounding:
        ours, theirs = theirs, ours
        print(f"the rounding of {parsed.ours} alone was measured, so it is the reference")
    print(f"here {ours.framework}, the reference {theirs.framework}")
    if not theirs.rounding:
        print("the rounding of neither trace was measured (only PyTorch's is): the tolerances alone decide")
    mode = fuller_mode(theirs)
    names = match(side_of(ours, mode), side_of(theirs, mode), corrections)
    if names.problems:
        raise ValueError(f"compare: the traces are of different nets: {'; '.join(names.problems[:3])}")
    ladder = compare_recordings(ours, theirs, names, _initialisation(parsed.no_initialisation, theirs.task))
    return _finish(parsed, ladder, theirs.task, began, f"{parsed.ours} against {parsed.reference}", ladder.environment)


def _check_same_task(ours: Recording, theirs: Recording) -> None:
    a, b = ours.task, theirs.task
    pairs = {f"recipe.{name}": (getattr(a.recipe, name), value) for name, value in vars(b.recipe).items()}
    pairs |= {"updates": (len(a.batches), len(b.batches)), "accumulate": (a.accumulate, b.accumulate)}
    pairs |= {"own loss": (a.own_loss, b.own_loss), "own optimizer": (a.own_optimizer, b.own_optimizer)}
    wrong = [f"{name} {x!r} and {y!r}" for name, (x, y) in pairs.items() if x != y]
    if wrong:
        raise ValueError(f"compare: the traces are of different tasks: {', '.join(wrong)}; record one --like the other")


def corrections_in(parsed: argparse.Namespace) -> Corrections | None:
    """The corrections of --map. Raises a UsageError if the file is missing or invalid."""
    with cli.usage_errors():
        return read_map(parsed.map) if parsed.map else None


def _initialisation(left_out: bool, task: Task) -> bool:
    """Whether the distributions of the initial parameters are compared."""
    return not left_out and task.recipe.initialisation == "torchvision"


def _our_imports(parsed: argparse.Namespace) -> AbstractContextManager[None]:
    return imports_beside(parsed.net, parsed.our_loss, parsed.our_optimizer, parsed.our_step)


def _replay(
    parsed: argparse.Namespace,
    functions: dict[str, Any],
    reference: Recording,
    net: Any,
    build: Callable[[], Any],
    corrections: Corrections | None,
) -> Any:
    from resnet_fn.parity.replay import replay

    make_ours, initialisation = (
        functions.get("our_optimizer"),
        _initialisation(parsed.no_initialisation, reference.task),
    )
    ours: dict[str, Any] = {"loss": functions.get("our_loss"), "optimizer": make_ours(net) if make_ours else None}
    ours |= {"make_step": functions["our_step"]} if "our_step" in functions else {}
    ours |= {"mode": parsed.mode, "initialisation": initialisation, "build": build, "corrections": corrections}
    return replay(reference, net, **ours)


def _start(parsed: argparse.Namespace, seed: int) -> None:
    import mindspore

    from resnet_fn.runtime import process

    process.start(parsed.device, parsed.threads)
    mindspore.set_seed(seed + 1)  # MindSpore reads 0 as "no seed given"


def _build_net(parsed: argparse.Namespace, functions: dict[str, Any], task: Task, classes: int) -> Any:
    """The user's net, or one of this package that fits the task."""
    from mindspore import nn

    from resnet_fn.models import create_model

    if "net" in functions:
        return flags.returned("--net", parsed.net, functions["net"](), nn.Cell, "a MindSpore Cell")
    options = {name: getattr(task.recipe, name) for name in ("initialisation", "zero_init_residual", "precision")}
    return create_model(parsed.model or task.recipe.model, **options, **flags.net_arguments(task, classes))


def _reference(parsed: argparse.Namespace, functions: dict[str, Any], task: Task) -> Any:
    """The user's torch module, or one of this package's nets in PyTorch that fits the task."""
    from torch.nn import Module

    from resnet_fn.parity.torch_side import reference_of

    if "reference" in functions:
        return flags.returned("--reference", parsed.reference, functions["reference"](), Module, "a torch Module")
    shape = flags.net_arguments(task, flags.image_shape(parsed, task.recipe)[1])
    return reference_of(parsed.model or task.recipe.model, shape, task.recipe.zero_init_residual)


def _finish(
    parsed: argparse.Namespace, ladder: Any, task: Task, began: float, title: str, environment: Sequence[str] = ()
) -> int:
    """Print the ladder and write its files; where it differs, print `environment` too. Returns the exit code."""
    from resnet_fn.parity import report
    from resnet_fn.parity.page import write_page

    print(report.name_map(ladder))
    print(report.table(ladder))
    if environment and not ladder.agrees:
        print("\n  ".join(["environment:", *environment]))
    size = next((len(leaf) for _, leaf in leaves(tuple(reversed(task.batches[0]))) if np.ndim(leaf)), 1)
    seconds = time.perf_counter() - began
    print(f"{len(task.batches)} updates of {size} samples with {task.recipe.optimizer}, {seconds:.0f} s")
    print("not compared: which samples an update sees, and their augmentation")
    if parsed.json:
        report.write_json(ladder, parsed.json)
    if parsed.report:
        print(f"report: {write_page(ladder, parsed.report, title)}")
    return 0 if ladder.agrees and not (parsed.strict and ladder.beyond) else 1
