"""Define the commands of the parity ladder, which compares a net with a PyTorch net."""

import argparse
import contextlib
import dataclasses
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from resnet_fn.config import cli, shared_flags
from resnet_fn.config.optimizers import settings_read_by
from resnet_fn.config.output_paths import file_to_write, new_folder
from resnet_fn.config.wording import first_few
from resnet_fn.parity import flags
from resnet_fn.parity.asked import Asked
from resnet_fn.parity.nets import Nets, compares_initialisation
from resnet_fn.parity.record.drawing import Drawing
from resnet_fn.parity.shares import save_share
from resnet_fn.parity.tasks import built, load_functions, plan_asked_for
from resnet_fn.parity.trace.data import Trace
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.small import SmallTrace
from resnet_fn.parity.trace.small_file import load_trace, save_small
from resnet_fn.parity.trace.source import Recorded, Source, StoredSource
from resnet_fn.parity.trace.tree import leaves
from resnet_fn.runtime.disk import sha256_of_file
from resnet_fn.runtime.extras import import_extra
from resnet_fn.runtime.malloc import keep_freed
from resnet_fn.runtime.user_files import imports_beside, load_function
from resnet_fn.runtime.workers import Workers, join

if TYPE_CHECKING:
    from resnet_fn.parity.compare.result import Verdict

_LIVE = """examples:
  python -m resnet_fn.parity --model resnet50 --image-size 64 --batch-size 4 --steps 5
  python -m resnet_fn.parity --model resnet8 --steps 20 --json ladder.json --report out
  python -m resnet_fn.parity --reference torch_net.py:build --net ported.py:build --optimizer adamw

with PyTorch on one machine and MindSpore on another (each has a --help):
  python -m resnet_fn.parity record --reference torch_net.py:build --out trace
  python -m resnet_fn.parity replay trace --net ported.py:build
  python -m resnet_fn.parity compare trace-a trace-b

one net, in MindSpore or PyTorch, computed in several ways:
  python -m resnet_fn.parity self ported.py:build

"""
_RECORD = """examples:
  python -m resnet_fn.parity record --reference torch_net.py:build --inputs data.py:batches --out trace
  python -m resnet_fn.parity record --net ported.py:build --out trace-a
  python -m resnet_fn.parity record --net ported.py:build --like trace-a --out trace-b
  python -m resnet_fn.launch --workers 2 -- python -m resnet_fn.parity record --net ported.py:build --out two

Recording a PyTorch net needs only NumPy and PyTorch. Recording a MindSpore net does not need PyTorch.
"""
_CODES = (
    "exit codes: 0 both compute the same, 1 a difference or an error, 2 wrong usage,\n"
    "            3 an undecided stage and no difference\n"
)


def live(arguments: Sequence[str]) -> int:
    """Run both nets in this process, compare them, and return the exit code."""
    parsed = _parser_of_live().parse(arguments)
    _check_usage_of_live(parsed)
    asked = flags.asked_in(parsed)
    plan = plan_asked_for(asked)
    nets = Nets(asked, load_functions(asked), plan)
    torch = import_extra("torch", "the parity ladder")
    from resnet_fn.runtime.cpus import cpu_count

    began = time.perf_counter()
    nets.start_mindspore()
    # Two thread pools on the same cores slow each other down tenfold. Torch has less work, so it
    # gets half of them.
    torch.set_num_threads(max(1, cpu_count() // 2))
    ladder = nets.replay(nets.record_reference(), plan.net.classes)
    title = f"{asked.net or asked.model or plan.net.model} against {asked.reference or 'PyTorch'}"
    return _finish(asked, ladder, plan, began, title)


def _parser_of_live() -> cli.Parser:
    description = "Compare a net and one training step with PyTorch, stage by stage."
    parser = cli.Parser("parity", description, _LIVE + _CODES, "")
    flags.add(
        parser.add_argument_group("what is compared"),
        "model",
        "net",
        "reference",
        "our-loss",
        "our-optimizer",
        "our-step",
        *flags.COMPARED,
        model="; default the recipe's",
        reference="; default the PyTorch version of --model",
    )
    flags.add_task_flags(parser)
    flags.add(shared_flags.add_device_flags(parser), "mode")
    flags.add(parser.add_argument_group("what is written"), *flags.WRITTEN)
    return parser


def _check_usage_of_live(parsed: argparse.Namespace) -> None:
    """Raise a usage error for flags of `parity` that do not fit together."""
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


def record(arguments: Sequence[str]) -> int:
    """Record what one net computes, write a trace folder, and return the exit code."""
    parsed = _parser_of_record().parse(arguments)
    _check_usage_of_record(parsed)
    began = time.perf_counter()
    asked = flags.asked_in(parsed)
    functions = load_functions(asked)
    like = load_trace(Path(asked.like)) if asked.like else None
    plan = like.plan if like else plan_asked_for(asked)
    drawing = Drawing(plan.seed) if asked.small else None
    if drawing:  # no initial values, no probes
        asked = dataclasses.replace(asked, initialisation=False, probes="none")
    if drawing and not asked.inputs:
        plan = dataclasses.replace(plan, batches=drawing.batches(plan.batches))
    nets = Nets(asked, functions, plan)
    if asked.net:
        recorded = nets.record_port(like, drawing)
    else:
        torch = import_extra("torch", "recording a reference")
        keep_freed()
        torch.set_num_threads(asked.threads or torch.get_num_threads())
        recorded = nets.record_reference(drawing)
    recording = recorded.trace
    if own := asked.net or asked.reference:
        path = Path(own.rpartition(":")[0])
        recording.file = f"{path.name}, SHA-256 {sha256_of_file(path)}"
    workers = join(asked.device) if asked.net else Workers()
    if drawing:
        size, left_out = save_small(
            recording, recorded.source, Path(asked.out), drawing.seed, drawing.ranges
        )
        if left_out:
            recording.notes.append(
                f"not in a small trace, as arrays of more than 4 KB that are not trained: "
                f"{first_few(left_out)}"
            )
    else:
        size = save_share(recorded, Path(asked.out), asked.layers, workers)
    if not workers.is_main:
        return 0
    print(
        f"{asked.out}: {recording.framework}, {len(plan.batches)} updates with "
        f"{plan.optimizer.name}, "
        f"{len(recording.layers['eval'])} layers, {_words_of(size)}, "
        f"{time.perf_counter() - began:.0f} s"
    )
    print("".join(f"{note}\n" for note in recording.notes), end="")
    return 0


def _words_of(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} KB"


def _parser_of_record() -> cli.Parser:
    description = "Record what a net computes in a few updates."
    parser = cli.Parser("parity record", description, _RECORD, "--out FOLDER")
    group = parser.add_argument_group("what is recorded")
    flags.add(
        group, "reference", "net", "model", "like", model=", in PyTorch; default the recipe's"
    )
    flags.add(group, "our-step")
    flags.add_task_flags(parser)
    flags.add(shared_flags.add_device_flags(parser), "mode")
    flags.add(parser.add_argument_group("what is written"), "out", "small", "layers", "probes")
    return parser


def _check_usage_of_record(parsed: argparse.Namespace) -> None:
    """Raise a usage error for flags of `parity record` that do not fit together."""
    described = flags.task_flags_in(parsed)
    own = parsed.net or parsed.reference
    several = "MS_ROLE" in os.environ  # msrun started this process
    small = parsed.small
    fault = _fault_of_out(parsed) if parsed.out else ""
    cli.raise_usage_errors(
        (not parsed.out, "--out: needs a folder to write; give --out trace"),
        (fault, f"--out: {fault}"),
        (parsed.net and parsed.reference, "--net: give either --net or --reference, not both"),
        (small and parsed.like, "--small: draws its own weights; leave out --like"),
        (small and parsed.layers == "none", "--small: holds layers; leave out --layers none"),
        (small and parsed.probes == "all", "--small: holds no probes; leave out --probes all"),
        (small and several, "--small: holds one worker; record without msrun"),
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
            parsed.device != "CPU" and not parsed.net,
            "--device: works only with --net; a reference runs on the CPU, so leave it out",
        ),
        (
            parsed.mode != "graph" and not parsed.net,
            "--mode: works only with --net; a reference is not compiled, so leave it out",
        ),
        (
            several and not parsed.net,
            "--net: several workers need a MindSpore net; add --net FILE:FUNCTION",
        ),
        (
            parsed.like and described,
            f"--like: the trace already contains a task; leave out {', '.join(described)}",
        ),
        (
            parsed.inputs and not own,
            "--inputs: works only with --reference or --net; add one of them",
        ),
    )


def _fault_of_out(parsed: argparse.Namespace) -> str:
    """Return why --out cannot be written, or an empty string."""
    check = file_to_write if parsed.small else new_folder
    try:
        check(parsed.out)
    except argparse.ArgumentTypeError as error:
        return str(error)
    return ""


def replay_trace(arguments: Sequence[str]) -> int:
    """Compare a MindSpore net with a trace of the reference, and return the exit code."""
    parsed = _parser_of_replay().parse(arguments)
    cli.raise_usage_errors(
        (parsed.net and parsed.model, "--net: give either --net or --model, not both")
    )
    asked = flags.asked_in(parsed)
    began = time.perf_counter()
    reference, ladder = replayed(asked, Path(parsed.trace))
    file = f" ({reference.file})" if reference.file else ""
    print(f"trace of {reference.framework}: {parsed.trace}{file}")
    title = f"{asked.net or asked.model or reference.plan.net.model} against {parsed.trace}"
    return _finish(asked, ladder, reference.plan, began, title, ladder.environment)


def replayed(asked: Asked, path: Path) -> tuple[Trace, "Verdict"]:
    """Return a trace, and the comparison of a MindSpore net with it."""
    functions = load_functions(asked)
    reference = load_trace(path)
    cli.raise_usage_errors(
        (
            reference.file and not (asked.net or asked.model),
            f"--net: the trace is of {reference.file_name}, which is no net of this "
            "package; give --net FILE:FUNCTION, its port to MindSpore",
        )
    )
    source = _source_of(reference, asked)
    nets = Nets(asked, functions, reference.plan)
    nets.start_mindspore()
    outputs = reference.run.eval_outputs.values()
    classes = next((output.shape[-1] for output in outputs if output.ndim), 0)
    return reference, nets.replay(Recorded(reference, source), classes)


def _parser_of_replay() -> cli.Parser:
    description = (
        "Compare a MindSpore net with a trace that `parity record` wrote. Only "
        "--reference needs PyTorch."
    )
    parser = cli.Parser(
        "parity replay", description, _CODES, "TRACE (--net FILE:FUNCTION | --model NAME)"
    )
    parser.add_argument("trace", metavar="TRACE", help="the folder that `parity record` wrote")
    group = parser.add_argument_group("what is compared")
    flags.add(
        group,
        "model",
        "net",
        "our-loss",
        "our-optimizer",
        "our-step",
        *flags.COMPARED,
        model="; default the model of the trace's recipe",
    )
    group.add_argument("--reference", **flags.SEARCHED)
    flags.add(shared_flags.add_device_flags(parser), "mode")
    flags.add(parser.add_argument_group("what is written"), *flags.WRITTEN)
    return parser


def compare(arguments: Sequence[str]) -> int:
    """Compare two traces and return the exit code. Only --reference needs PyTorch."""
    parsed = _parser_of_compare().parse(arguments)
    asked = flags.asked_in(parsed)
    began = time.perf_counter()
    from resnet_fn.parity.ladder import compare_recordings
    from resnet_fn.parity.pair.matching import fuller_mode, match, outline_of

    port, reference = load_trace(Path(parsed.trace)), load_trace(Path(parsed.other))
    if isinstance(port, SmallTrace):
        raise ValueError(
            f"compare: {parsed.trace} is a small trace, which can only be the second one; record "
            "the net with --like TRACE and without --small"
        )
    _check_same_task(port, reference)
    if asked.quick:
        port.probes, reference.probes = {}, {}
    of_port, of_reference = parsed.trace, parsed.other
    if port.rounding and not (reference.rounding or isinstance(reference, SmallTrace)):
        port, reference = reference, port
        of_port, of_reference = of_reference, of_port
        print(
            f"{parsed.trace} becomes the reference, because only this trace has a measured rounding"
        )
    print(f"the port {port.framework}, the reference {reference.framework}")
    mode = fuller_mode(reference)
    names = match(outline_of(port, mode), outline_of(reference, mode), asked.corrections)
    if names.problems:
        raise ValueError(
            f"compare: the traces must be of the same net, but {'; '.join(names.problems[:3])}"
        )
    initialisation = compares_initialisation(asked, reference.plan)
    source = _source_of(reference, asked)
    ladder = compare_recordings(port, reference, names, initialisation, not asked.quick, source)
    title = f"{of_port} against {of_reference}"
    return _finish(asked, ladder, reference.plan, began, title, ladder.environment)


def _parser_of_compare() -> cli.Parser:
    description = (
        "Compare two traces of the same task. Only --reference needs PyTorch, and "
        "nothing needs MindSpore."
    )
    parser = cli.Parser("parity compare", description, _CODES, "TRACE TRACE")
    parser.add_argument("trace", metavar="TRACE", help="the trace of the net that is tested")
    parser.add_argument("other", metavar="TRACE", help="the trace that is the reference")
    group = parser.add_argument_group("what is compared")
    flags.add(group, *flags.COMPARED)
    group.add_argument("--reference", **flags.SEARCHED)
    flags.add(parser.add_argument_group("what is written"), *flags.WRITTEN)
    return parser


def _source_of(reference: Trace, asked: Asked) -> Source:
    """Return what a trace can still be asked: of its torch module, too, if --reference names it."""
    if not (location := asked.searched):
        return StoredSource(reference)
    path, recorded = Path(location.rpartition(":")[0]), reference.file_name
    other = recorded and path.is_file() and not reference.file.endswith(sha256_of_file(path))
    cli.raise_usage_errors(
        (
            asked.quick,
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
    build = load_function(location, "--reference")

    @contextlib.contextmanager
    def module() -> Iterator[Any]:
        from resnet_fn.runtime.cpus import cpu_count

        torch.set_num_threads(max(1, cpu_count() // 2))  # as in `live`
        torch.manual_seed(reference.plan.seed)  # as in `record`
        with imports_beside(location):
            yield built("--reference", location, build, torch.nn.Module, "a torch Module")

    from resnet_fn.parity.explain.torch_search import ModuleSource

    return ModuleSource(reference, module)


def _check_same_task(port: Trace, reference: Trace) -> None:
    nets = [_settings_of(trace.plan) for trace in (port, reference)]
    settings = []
    for name in nets[1] | nets[0]:
        x, y = (net.get(name) for net in nets)
        # two optimizers read different settings
        is_of_one = name.startswith("optimizer.") and not all(name in net for net in nets)
        if x != y and not is_of_one:
            settings.append(f"{name} {x!r} and {y!r}")
    if settings:
        raise ValueError(
            f"compare: the tasks differ: {', '.join(settings)}; record one trace again with --like "
            "TRACE"
        )


def _settings_of(plan: Plan) -> dict[str, Any]:
    """Return the settings of a plan by name, without what the stage of inputs compares."""
    groups = ("optimizer", "loss", "net")
    settings = {
        f"{group}.{name}": value
        for group in groups
        for name, value in vars(getattr(plan, group)).items()
    }
    optimizer = settings_read_by(plan.optimizer.name, settings.pop("optimizer.settings"))
    for name, value in optimizer.items():
        settings[f"optimizer.{name}"] = value
    left_out = (*groups, "batches", "seed")
    rest = {name: value for name, value in vars(plan).items() if name not in left_out}
    del settings["net.classes"]
    return {"updates": len(plan.batches), **settings, **rest}


def _finish(
    asked: Asked,
    ladder: "Verdict",
    plan: Plan,
    began: float,
    title: str,
    environment: Sequence[str] = (),
) -> int:
    """Print the results, write the files that the flags name, and return the exit code."""
    from resnet_fn.parity.show import json_file, table
    from resnet_fn.parity.show.page import write_page

    print(table.name_map(ladder))
    print(table.table(ladder))
    if environment and not ladder.agrees:
        print("\n  ".join(["environment:", *environment]))
    updates = f"{len(plan.batches)} updates of {_samples_of(plan)} samples"
    seconds = time.perf_counter() - began
    print(f"{updates} with {plan.optimizer.name}, {seconds:.0f} s")
    print(ladder.coverage.not_compared)
    if asked.inputs_verdict:
        print(asked.inputs_verdict)
    if asked.json:
        json_file.write_json(ladder, asked.json, asked.inputs_verdict)
    if asked.report:
        page = write_page(ladder, asked.report, title, asked.inputs_verdict)
        print(f"report: {page}")
    if ladder.first_stage:
        return 1
    if ladder.undecided:
        return 3
    return 1 if asked.strict and (ladder.beyond or ladder.probed.findings) else 0


def _samples_of(plan: Plan) -> int:
    """Return the length of a batch's labels or, if these are numbers, of its inputs."""
    inputs, labels = plan.batches[0]
    lengths = [len(leaf) for _, leaf in leaves((labels, inputs)) if np.ndim(leaf)]
    return lengths[0] if lengths else 1
