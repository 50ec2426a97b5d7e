"""The command `parity self`, which compares a net with itself, computed in several ways."""

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

from resnet_fn.config import cli, shared_flags
from resnet_fn.config.hints import suggest_name
from resnet_fn.config.setting_names import flag_name
from resnet_fn.parity import flags
from resnet_fn.parity.asked import Asked
from resnet_fn.parity.nets import Nets
from resnet_fn.parity.record.printed_once import lines_printed_once
from resnet_fn.parity.tasks import built, load_functions, plan_asked_for
from resnet_fn.parity.trace.difference import DIFFERS
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.tree import named_leaves
from resnet_fn.parity.ways import show, ways
from resnet_fn.parity.ways.net import OneNet
from resnet_fn.parity.ways.padding import SINGLE
from resnet_fn.runtime.user_files import imports_beside

_EPILOG = """examples:
  python -m resnet_fn.parity self ported.py:build
  python -m resnet_fn.parity self torch_net.py:build --inputs data.py:batches
  python -m resnet_fn.parity self ported.py:build --ways unpadded --length-axis ids=1

A MindSpore net does not need PyTorch, and a torch net does not need MindSpore.

exit codes: 0 the net computes the same in all ways, 1 a difference or an error,
            2 wrong usage, 3 a way is undecided and none differs
"""


def compare_ways(arguments: Sequence[str]) -> int:
    """Compute a net in several ways, print and write what differs, and return the exit code."""
    parsed = _parser().parse(arguments)
    _check_usage(parsed)
    began = time.perf_counter()
    asked = flags.asked_in(parsed)
    functions, plan = load_functions(asked), plan_asked_for(asked)
    half = "" if parsed.half == "none" else parsed.half or "float16"
    axes = _length_axes(parsed, plan)
    options = ways.Options(axes, half, parsed.compile, _names(parsed.ways))
    with imports_beside(asked.net, asked.loss, asked.optimizer), lines_printed_once():
        net = _net(asked, functions, plan)
        _check_flags_of_net(parsed, net)
        print(show.row())
        results = []
        for result in ways.results(net, options):
            print(show.row(result), flush=True)  # a later way may take long
            results.append(result)
    print(f"\n{show.findings(results)}")
    print(f"{net.framework}, {time.perf_counter() - began:.0f} s")
    if parsed.json:
        show.write_json(results, asked.net, net.framework, parsed.json)
    if any(result.verdict == DIFFERS for result in results):
        return 1
    return 0 if show.agree(results) else 3


def _parser() -> cli.Parser:
    description = "Compare a net with itself, computed in several ways. It needs no other net."
    parser = cli.Parser("parity self", description, _EPILOG, "NET")
    parser.add_argument(
        "net", nargs="?", metavar="NET", help="FILE:FUNCTION: returns a Cell or a torch Module"
    )
    group = parser.add_argument_group("the ways")
    names = f"only these of {', '.join(ways.NAMES)}; default all"
    group.add_argument("--ways", metavar="NAMES", default="", help=names)
    axes = "axes of the length of inputs, from 0, as ids=1,mask=1 (a single input: inputs=1)"
    group.add_argument("--length-axis", metavar="NAME=AXIS", default="", help=axes)
    half = "compared with float32; default float16"
    choices = ("float16", "bfloat16", "none")
    group.add_argument("--half", choices=choices, help=half)
    compile_ = "also compile a torch Module with torch.compile"
    group.add_argument("--compile", action="store_true", help=compile_)
    flags.add_task_flags(parser)
    shared_flags.add_device_flags(parser)
    flags.add(parser.add_argument_group("what is written"), "json")
    return parser


def _check_usage(parsed: argparse.Namespace) -> None:
    chosen = _names(parsed.ways)
    cli.raise_usage_errors(
        (not parsed.net, "NET: none is given; give FILE:FUNCTION, for example ported.py:build"),
        *(
            (
                name not in ways.NAMES,
                f"--ways: {name!r} is unknown; {suggest_name(name, ways.NAMES)}",
            )
            for name in chosen
        ),
        (
            parsed.ways and not chosen,
            f"--ways: {parsed.ways!r} names no way; give for example repeated,alone",
        ),
        *(
            (
                given and chosen and way not in chosen,
                f"--{flag}: has no effect without {way} in --ways; leave it out",
            )
            for flag, given, way in (
                ("length-axis", parsed.length_axis, "unpadded"),
                ("half", parsed.half, "half"),
                ("compile", parsed.compile, "compiled"),
            )
        ),
        (parsed.accumulate, "--accumulate: micro-batches are one of the ways; leave it out"),
        *(
            (
                getattr(parsed, name, None) is not None,
                f"--{flag_name(name)}: no way has a moving average; leave it out",
            )
            for name in ("ema", "ema_every", "ema_start")
        ),
    )


def _check_flags_of_net(parsed: argparse.Namespace, net: OneNet) -> None:
    on_card = parsed.device != "CPU"
    cli.raise_usage_errors(
        (
            parsed.compile and net.compiles_always,
            f"--compile: has no effect, because {net.compiler} is always compared; leave it out",
        ),
        (
            on_card and net.framework.startswith("PyTorch"),
            "--device: has no effect on a torch net, which runs on the CPU; leave it out",
        ),
    )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _length_axes(parsed: argparse.Namespace, plan: Plan) -> dict[str, int]:
    """Return the axis of the length of each input that --length-axis names."""
    leaves = named_leaves(plan.batches[0][0], SINGLE)
    names = {name.removeprefix(f"{SINGLE} "): name for name in leaves}
    axes = {}
    for word in _names(parsed.length_axis):
        name, _, axis = word.partition("=")
        leaf = leaves.get(names.get(name, ""))
        is_axis = leaf is not None and axis.isdecimal() and 0 < int(axis) < leaf.ndim
        inputs = ", ".join(f"{short} {list(leaves[long].shape)}" for short, long in names.items())
        message = f"--length-axis: {word!r} is no axis of an input; the inputs are {inputs}"
        cli.raise_usage_errors((not is_axis, f"{message}; give for example {next(iter(names))}=1"))
        axes[names[name]] = int(axis)
    return axes


def _net(asked: Asked, functions: dict[str, Any], plan: Plan) -> OneNet:
    """Build the net, in the framework that its function uses."""
    build, own = functions["net"], functions.get
    if "mindspore" in sys.modules:
        _start_mindspore(asked, plan)
    if "torch" in sys.modules:
        _start_torch(asked, plan)
    net = built("NET", asked.net, build, object, "a MindSpore Cell or a torch Module")
    roots = {base.__module__.partition(".")[0] for base in type(net).__mro__}
    if "torch" in roots:
        from resnet_fn.parity.ways.torch_net import TorchNet

        return TorchNet(net, plan, own("loss"), own("optimizer"))
    if "mindspore" not in roots:
        raise ValueError(
            f"NET: {asked.net} returned {type(net).__name__}; return a Cell or a torch Module"
        )
    _start_mindspore(asked, plan)
    from resnet_fn.parity.ways.mindspore_net import MindSporeNet

    return MindSporeNet(net, plan, own("loss"), own("optimizer"))


def _start_mindspore(asked: Asked, plan: Plan) -> None:
    Nets(asked, {}, plan).start_mindspore()


def _start_torch(asked: Asked, plan: Plan) -> None:
    import torch

    torch.manual_seed(plan.seed)
    if asked.threads:
        torch.set_num_threads(asked.threads)
