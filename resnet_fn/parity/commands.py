"""Define the commands of the parity ladder, which compares a net with a PyTorch net."""

import argparse
import dataclasses
import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from resnet_fn.config import cli
from resnet_fn.parity import flags
from resnet_fn.parity.answers import answering
from resnet_fn.parity.pair.map_file import Corrections, read_map
from resnet_fn.parity.trace.data import Trace, Wanted
from resnet_fn.parity.trace.folder import load_recording, save_share
from resnet_fn.parity.trace.plan import Task
from resnet_fn.parity.trace.tree import leaves
from resnet_fn.runtime.disk import sha256_of_file
from resnet_fn.runtime.extras import import_extra
from resnet_fn.runtime.malloc import keep_freed
from resnet_fn.runtime.user_files import imports_beside, load_function
from resnet_fn.runtime.workers import Workers, join

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
  python -m resnet_fn.launch --workers 2 -- python -m resnet_fn.parity record --net ported.py:build --out two

Recording a PyTorch net needs only NumPy and PyTorch. Recording a MindSpore net does not need PyTorch.
"""
_CODES = (
    "exit codes: 0 both compute the same, 1 a difference, an undecided stage or an error, 2 "
    "wrong usage\n"
)
_FILE, _SWITCH = "FILE:FUNCTION", {"action": "store_true"}
_MODE = {"choices": ("graph", "pynative"), "default": "graph"}
_FOLDER = {"metavar": "DIR", "type": cli.folder_to_write}
_LAYERS = {"choices": ("all", "none"), "default": "all"}
_FLAGS: dict[str, tuple[str | dict[str, Any], str]] = {
    "model": ("NAME", "a net of this package"),
    "net": (_FILE, "a function that returns a MindSpore Cell"),
    "reference": (_FILE, "a function that returns a torch Module"),
    "our-loss": (_FILE, "a function that computes MindSpore's loss of (outputs, labels)"),
    "our-optimizer": (
        _FILE,
        "a function that takes the net and returns an optimizer of MindSpore or of this package",
    ),
    "our-step": (_FILE, "a function like `make_train_step` that returns your own step"),
    "map": (
        "FILE",
        "a JSON file that corrects which names of both nets are paired (form: docs/parity.md)",
    ),
    "like": ("TRACE", "use the task and the weights of this trace; needs --net"),
    "quick": (
        _SWITCH,
        "compare only the batches, without probes (changed inputs) and without a search for causes",
    ),
    "probes": (_LAYERS, "none: record no probes (outputs for changed inputs)"),
    "no-initialisation": (
        _SWITCH,
        "do not compare initial weights (for nets that load trained weights)",
    ),
    "strict": (
        _SWITCH,
        "exit 1 also if a probe differs, or if a difference within tolerance exceeds rounding",
    ),
    "mode": (_MODE, "graph compiles an update, pynative compiles nothing; default graph"),
    "json": ("FILE", "write the results of every stage, array and layer as JSON into this file"),
    "report": (
        _FOLDER,
        "write parity.html with verdict, stages, losses and each layer's error into this folder",
    ),
    "out": ("FOLDER", "a new folder for the trace"),
    "layers": (
        _LAYERS,
        "none: record no layers; then no layer is compared, and both nets must name parameters "
        "alike",
    ),
}
_SEARCHED: dict[str, Any] = {
    "dest": "searched",
    "metavar": _FILE,
    "help": "search for causes in the recorded torch module, from its unchanged file; needs "
    "PyTorch",
}
_COMPARED, _WRITTEN = ("map", "no-initialisation", "strict", "quick"), ("json", "report")


def _add(group: argparse._ArgumentGroup, *names: str, **more: str) -> None:
    """Add the flags with these names to a group.

    `more` maps a flag to text that is added to the flag's help.
    """
    for name in names:
        options, meaning = _FLAGS[name]
        options = {"metavar": options} if isinstance(options, str) else options
        group.add_argument(f"--{name}", help=meaning + more.get(name, ""), **options)


@dataclasses.dataclass(frozen=True)
class _Given:
    """The input of a command: the parsed flags, the user's functions by flag, and the task."""

    parsed: argparse.Namespace
    functions: dict[str, Any]
    task: Task
    corrections: Corrections | None = None

    @property
    def initialisation(self) -> bool:
        """Whether the initial parameters are compared."""
        left_out = getattr(self.parsed, "no_initialisation", False)
        return not left_out and self.task.recipe.initialisation == "torchvision"

    @property
    def probes(self) -> bool:
        """Whether probes (extra forward passes on changed inputs) are computed."""
        return (
            not getattr(self.parsed, "quick", False)
            and getattr(self.parsed, "probes", None) != "none"
        )

    def our_net(self, classes: int) -> Any:
        """Build the MindSpore net of --net, or a net of this package with `classes` classes."""
        from mindspore import nn

        from resnet_fn.models import create_model

        if "net" in self.functions:
            made = self.functions["net"]()
            return flags.returned("--net", self.parsed.net, made, nn.Cell, "a MindSpore Cell")
        recipe = self.task.recipe
        options = {
            name: getattr(recipe, name)
            for name in ("initialisation", "zero_init_residual", "precision")
        }
        return create_model(
            self.parsed.model or recipe.model, **options, **flags.net_arguments(self.task, classes)
        )

    def their_net(self) -> Any:
        """Build the torch module of --reference, or the PyTorch version of a net of this
        package.
        """
        from torch.nn import Module

        from resnet_fn.parity.reference.nets import reference_net

        if "reference" in self.functions:
            made = self.functions["reference"]()
            return flags.returned(
                "--reference", self.parsed.reference, made, Module, "a torch Module"
            )
        recipe = self.task.recipe
        shape = flags.net_arguments(self.task, flags.image_shape(self.parsed, recipe)[1])
        return reference_net(
            self.parsed.model or recipe.model, zero_init_residual=recipe.zero_init_residual, **shape
        )

    def start_mindspore(self) -> Workers:
        """Set MindSpore's device and seed, and return the rank of this worker and the number of
        workers.
        """
        import mindspore

        from resnet_fn.runtime import process

        workers = process.start(self.parsed.device, self.parsed.threads)
        mindspore.set_seed(self.task.seed + 1)  # MindSpore takes 0 for "no seed"
        return workers

    def record_theirs(self) -> Trace:
        """Record the reference in PyTorch."""
        import torch

        from resnet_fn.parity.record.torch_side import record_reference

        own, build = self.functions.get, self.their_net if self.initialisation else None
        torch.manual_seed(self.task.seed)
        with imports_beside(self.parsed.reference, self.parsed.loss, self.parsed.optimizer):
            net = self.their_net()
            recorded = record_reference(
                net, self.task, own("loss"), own("optimizer"), build, self.probes
            )
            return answering(recorded)

    def record_ours(self, like: Trace | None) -> Trace:
        """Record the net in MindSpore, with the weights and weight decays of the recording `like`,
        if it is given.
        """
        from resnet_fn.parity.pair.like import like_of
        from resnet_fn.parity.record.mindspore_cell import run_in
        from resnet_fn.parity.record.mindspore_side import record_net
        from resnet_fn.parity.replay import names_of
        from resnet_fn.update.exchange import with_all_reduce

        workers, own = with_all_reduce(self.start_mindspore()), self.functions
        build, make_optimizer = partial(self.our_net, 0), own.get("optimizer")
        places = (self.parsed.net, self.parsed.loss, self.parsed.optimizer, self.parsed.our_step)
        with imports_beside(*places), run_in(self.parsed.mode):
            net = build()
            options: dict[str, Any] = {
                "optimizer": make_optimizer(net) if make_optimizer else None,
                "workers": workers,
            }
            options |= {"make_step": own["our_step"]} if "our_step" in own else {}
            options |= {"loss": own.get("loss"), "build": build if self.initialisation else None}
            options["probes"] = self.probes
            if like is None:
                return record_net(net, self.task, **options)
            names = names_of(net, like)
            if names.problems:
                differences = "; ".join(names.problems[:3])
                raise ValueError(
                    f"--like: {self.parsed.like} must be a trace of this net, but {differences}"
                )
            theirs = like_of(like, names, make_optimizer is not None)
            return record_net(net, self.task, like=theirs, **options)

    def replay(self, reference: Trace, classes: int) -> Any:
        """Compare the net in MindSpore with a recording of the reference. Returns a `Ladder`."""
        from resnet_fn.parity.replay import replay

        own, build = self.functions, partial(self.our_net, classes)
        options = {
            "mode": self.parsed.mode,
            "initialisation": self.initialisation,
            "corrections": self.corrections,
        }
        with imports_beside(
            self.parsed.net, self.parsed.our_loss, self.parsed.our_optimizer, self.parsed.our_step
        ):
            net = build()
            options |= {"optimizer": own["our_optimizer"](net)} if "our_optimizer" in own else {}
            options |= {"make_step": own["our_step"]} if "our_step" in own else {}
            options["quick"] = not self.probes
            return replay(reference, net, build=build, loss=own.get("our_loss"), **options)


def live(arguments: Sequence[str]) -> int:
    """Run both nets in this process, compare them, and return the exit code."""
    description = "Compare a net and one training step with PyTorch, stage by stage."
    parser = cli.Parser("parity", description, _LIVE + _CODES, "")
    group = parser.add_argument_group("what is compared")
    default = {
        "model": "; default the recipe's",
        "reference": "; default the PyTorch version of --model",
    }
    _add(
        group,
        "model",
        "net",
        "reference",
        "our-loss",
        "our-optimizer",
        "our-step",
        *_COMPARED,
        **default,
    )
    flags.add_task_flags(parser)
    _add(cli.add_device_flags(parser), "mode")
    _add(parser.add_argument_group("what is written"), *_WRITTEN)
    parsed = parser.parse(arguments)
    alone = [name for name in flags.own_functions(parsed) if not getattr(parsed, f"our_{name}")]
    torch_net = "the torch module that it was ported from"
    cli.raise_usage_errors(
        (
            parsed.net and not parsed.reference,
            f"--net: needs --reference FILE:FUNCTION, {torch_net}",
        ),
        (parsed.net and parsed.model, "--net: give either --net or --model, not both"),
        (
            parsed.inputs and not parsed.net,
            "--inputs: works only with --net and --reference; add both flags",
        ),
        *(
            (True, f"--{name}: needs --our-{name} FILE:FUNCTION, the same function for MindSpore")
            for name in alone
        ),
    )
    task = flags.task_of(parsed)
    given = _Given(parsed, flags.load_functions(parsed), task, corrections_in(parsed))
    torch = import_extra("torch", "the parity ladder")
    from resnet_fn.runtime.cpus import cpu_count

    began = time.perf_counter()
    given.start_mindspore()
    # Two thread pools on the same cores slow each other down tenfold. Torch has less work, so it
    # gets half of them.
    torch.set_num_threads(max(1, cpu_count() // 2))
    ladder = given.replay(given.record_theirs(), flags.image_shape(parsed, task.recipe)[1])
    title = (
        f"{parsed.net or parsed.model or task.recipe.model} against {parsed.reference or 'PyTorch'}"
    )
    return _finish(parsed, ladder, task, began, title)


def record(arguments: Sequence[str]) -> int:
    """Record what one net computes, write a trace folder, and return the exit code."""
    parser = cli.Parser(
        "parity record", "Record what a net computes in a few updates.", _RECORD, "--out FOLDER"
    )
    group = parser.add_argument_group("what is recorded")
    _add(group, "reference", "net", "model", "like", model=", in PyTorch; default the recipe's")
    _add(group, "our-step")
    flags.add_task_flags(parser)
    _add(cli.add_device_flags(parser), "mode")
    _add(parser.add_argument_group("what is written"), "out", "layers", "probes")
    parsed = parser.parse(arguments)
    set_, own = flags.task_flags_in(parsed), parsed.net or parsed.reference
    several = "MS_ROLE" in os.environ  # msrun started this process
    cli.raise_usage_errors(
        (not parsed.out, "--out: needs a folder to write; give --out trace"),
        (parsed.net and parsed.reference, "--net: give either --net or --reference, not both"),
        (own and parsed.model, "--model: give only one of --model, --net and --reference"),
        (
            parsed.like and not parsed.net,
            "--like: works only with --net; describe the task of a reference by flags",
        ),
        (
            parsed.our_step and not parsed.net,
            "--our-step: works only with --net; add --net FILE:FUNCTION",
        ),
        (
            several and not parsed.net,
            "--net: several workers need a MindSpore net; add --net FILE:FUNCTION",
        ),
        (
            parsed.like and set_,
            f"--like: the trace already contains a task; leave out {', '.join(set_)}",
        ),
        (
            parsed.inputs and not own,
            "--inputs: works only with --reference or --net; add one of them",
        ),
    )
    began = time.perf_counter()
    functions = flags.load_functions(parsed)
    like = load_recording(Path(parsed.like)) if parsed.like else None
    task = like.task if like else flags.task_of(parsed)
    given = _Given(parsed, functions, task)
    if parsed.net:
        recording = given.record_ours(like)
    else:
        torch = import_extra("torch", "recording a reference")
        keep_freed()
        torch.set_num_threads(parsed.threads or torch.get_num_threads())
        recording = given.record_theirs()
    if own:
        path = Path(own.rpartition(":")[0])
        recording.file = f"{path.name}, SHA-256 {sha256_of_file(path)}"
    workers = join(parsed.device) if parsed.net else Workers()
    size = save_share(recording, Path(parsed.out), parsed.layers, workers)
    if not workers.is_main:
        return 0
    print(
        f"{parsed.out}: {recording.framework}, {len(task.batches)} updates with "
        f"{task.recipe.optimizer}, "
        f"{len(recording.layers['eval'])} layers, {size / 1e6:.1f} MB, "
        f"{time.perf_counter() - began:.0f} s"
    )
    print("".join(f"{note}\n" for note in recording.notes), end="")
    return 0


def replay_trace(arguments: Sequence[str]) -> int:
    """Compare a MindSpore net with a trace of the reference, and return the exit code."""
    description = (
        "Compare a MindSpore net with a trace that `parity record` wrote. Only "
        "--reference needs PyTorch."
    )
    parser = cli.Parser(
        "parity replay", description, _CODES, "TRACE (--net FILE:FUNCTION | --model NAME)"
    )
    parser.add_argument("trace", metavar="TRACE", help="the folder that `parity record` wrote")
    group, model = (
        parser.add_argument_group("what is compared"),
        "; default the model of the trace's recipe",
    )
    _add(group, "model", "net", "our-loss", "our-optimizer", "our-step", *_COMPARED, model=model)
    group.add_argument("--reference", **_SEARCHED)
    _add(cli.add_device_flags(parser), "mode")
    _add(parser.add_argument_group("what is written"), *_WRITTEN)
    parsed = parser.parse(arguments)
    cli.raise_usage_errors(
        (parsed.net and parsed.model, "--net: give either --net or --model, not both")
    )
    functions, corrections = flags.load_functions(parsed), corrections_in(parsed)
    began = time.perf_counter()
    reference = _with_search(load_recording(Path(parsed.trace)), parsed)
    given = _Given(parsed, functions, reference.task, corrections)
    given.start_mindspore()
    ladder = given.replay(reference, next(iter(reference.run.eval_outputs.values())).shape[-1])
    print(
        f"trace of {reference.framework}: {parsed.trace}"
        + f" ({reference.file})" * bool(reference.file)
    )
    title = f"{parsed.net or parsed.model or reference.task.recipe.model} against {parsed.trace}"
    return _finish(parsed, ladder, reference.task, began, title, ladder.environment)


def compare(arguments: Sequence[str]) -> int:
    """Compare two traces and return the exit code. Only --reference needs PyTorch."""
    description = (
        "Compare two traces of the same task. Only --reference needs PyTorch, and "
        "nothing needs MindSpore."
    )
    parser = cli.Parser("parity compare", description, _CODES, "TRACE TRACE")
    parser.add_argument("ours", metavar="TRACE", help="the trace of the net that is tested")
    parser.add_argument("reference", metavar="TRACE", help="the trace that is the reference")
    group = parser.add_argument_group("what is compared")
    _add(group, *_COMPARED)
    group.add_argument("--reference", **_SEARCHED)
    _add(parser.add_argument_group("what is written"), *_WRITTEN)
    parsed = parser.parse(arguments)
    corrections = corrections_in(parsed)
    began = time.perf_counter()
    from resnet_fn.parity.ladder import compare_recordings
    from resnet_fn.parity.pair.matching import fuller_mode, match, side_of

    ours, theirs = load_recording(Path(parsed.ours)), load_recording(Path(parsed.reference))
    _check_same_task(ours, theirs)
    if parsed.quick:
        ours.probes, theirs.probes = {}, {}
    if ours.rounding and not theirs.rounding:
        ours, theirs = theirs, ours
        print(
            f"{parsed.ours} becomes the reference, because only this trace has a measured rounding"
        )
    print(f"here {ours.framework}, the reference {theirs.framework}")
    mode = fuller_mode(theirs)
    names = match(side_of(ours, mode), side_of(theirs, mode), corrections)
    if names.problems:
        raise ValueError(
            f"compare: the traces must be of the same net, but {'; '.join(names.problems[:3])}"
        )
    initialisation = _Given(parsed, {}, theirs.task).initialisation
    ladder = compare_recordings(
        ours, _with_search(theirs, parsed), names, initialisation, search=not parsed.quick
    )
    return _finish(
        parsed,
        ladder,
        theirs.task,
        began,
        f"{parsed.ours} against {parsed.reference}",
        ladder.environment,
    )


def _with_search(reference: Trace, parsed: argparse.Namespace) -> Trace:
    """Return `reference`.

    If --reference is set, the copy has a function that searches its torch module for causes.
    """
    if not (place := parsed.searched):
        return reference
    path, recorded = Path(place.rpartition(":")[0]), reference.file.partition(",")[0]
    other = recorded and path.is_file() and not reference.file.endswith(sha256_of_file(path))
    cli.raise_usage_errors(
        (
            parsed.quick,
            "--reference: --quick leaves out the search for causes; leave out --quick or "
            "--reference",
        ),
        (
            not reference.framework.startswith("PyTorch"),
            "--reference: the trace is of MindSpore; leave out this flag",
        ),
        (not recorded, "--reference: the trace is of a net of this package; leave out this flag"),
        (
            other,
            f"--reference: {path} is not the recorded {recorded}; give that file, or leave out "
            "--reference",
        ),
    )
    torch = import_extra("torch", "the search for causes")
    build = load_function(place, "--reference")

    def search(wanted: Wanted) -> list[str]:
        from resnet_fn.parity.explain.torch_search import searcher_of
        from resnet_fn.runtime.cpus import cpu_count

        torch.set_num_threads(max(1, cpu_count() // 2))  # as in `live`
        torch.manual_seed(reference.task.seed)  # as in `record`
        with imports_beside(place):
            made = flags.returned("--reference", place, build(), torch.nn.Module, "a torch Module")
            return searcher_of(reference, made)(wanted)

    return dataclasses.replace(reference, search=search)


def _check_same_task(ours: Trace, theirs: Trace) -> None:
    a, b = ours.task, theirs.task
    pairs = {
        f"recipe.{name}": (getattr(a.recipe, name), value) for name, value in vars(b.recipe).items()
    }
    pairs |= {
        "updates": (len(a.batches), len(b.batches)),
        "accumulate": (a.accumulate, b.accumulate),
    }
    pairs |= {
        "own loss": (a.own_loss, b.own_loss),
        "own optimizer": (a.own_optimizer, b.own_optimizer),
    }
    settings = [f"{name} {x!r} and {y!r}" for name, (x, y) in pairs.items() if x != y]
    if settings:
        raise ValueError(
            f"compare: the tasks differ: {', '.join(settings)}; record one trace again with --like "
            "TRACE"
        )


def corrections_in(parsed: argparse.Namespace) -> Corrections | None:
    """Read the file of --map, which corrects how names are paired.

    Returns None if --map is not set.
    """
    with cli.usage_errors():
        return read_map(parsed.map) if parsed.map else None


def _finish(
    parsed: argparse.Namespace,
    ladder: Any,
    task: Task,
    began: float,
    title: str,
    environment: Sequence[str] = (),
) -> int:
    """Print the results, write the files that the flags name, and return the exit code."""
    from resnet_fn.parity.compare.coverage import NOT_COMPARED
    from resnet_fn.parity.show import json_file, table
    from resnet_fn.parity.show.page import write_page

    print(table.name_map(ladder))
    print(table.table(ladder))
    if environment and not ladder.agrees:
        print("\n  ".join(["environment:", *environment]))
    size = next(
        (len(leaf) for _, leaf in leaves(tuple(reversed(task.batches[0]))) if np.ndim(leaf)), 1
    )
    seconds = time.perf_counter() - began
    print(
        f"{len(task.batches)} updates of {size} samples with {task.recipe.optimizer}, "
        f"{seconds:.0f} s"
    )
    print(NOT_COMPARED)
    if parsed.json:
        json_file.write_json(ladder, parsed.json)
    if parsed.report:
        print(f"report: {write_page(ladder, parsed.report, title)}")
    return (
        0
        if ladder.agrees and not (parsed.strict and (ladder.beyond or ladder.probed.findings))
        else 1
    )
