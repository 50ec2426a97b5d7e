"""python -m resnet_fn.parity record: what a net computes, as a folder, with only its own framework installed."""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from resnet_fn.config import cli
from resnet_fn.parity.commands.flags import (
    add_task_flags,
    image_shape,
    net_arguments,
    recipe_named_in,
    task_flags_in,
    task_of,
)
from resnet_fn.parity.commands.functions import load_functions, returned
from resnet_fn.parity.traces.folder import load_recording, save_recording
from resnet_fn.parity.traces.trace import Recording, Task
from resnet_fn.runtime.extras import import_extra
from resnet_fn.runtime.malloc import keep_freed

_EXAMPLES = """examples:
  python -m resnet_fn.parity record --reference torch_net.py:build --inputs data.py:batches --out trace
  python -m resnet_fn.parity record --net ported.py:build --out trace-a
  python -m resnet_fn.parity record --net ported.py:build --like trace-a --out trace-b

PyTorch's side needs NumPy and PyTorch only; MindSpore's does not need PyTorch.
"""


def record(arguments: Sequence[str]) -> int:
    """Record one side."""
    parsed = _parser(arguments).parse(arguments)
    ours, told = bool(parsed.net), task_flags_in(parsed)
    cli.refuse(
        (not parsed.out, "--out: needs a folder to write; give --out trace"),
        (ours and bool(parsed.reference), "--net: give it or --reference, not both"),
        (bool(parsed.net or parsed.reference) and bool(parsed.model), "--model: give it or a function, not both"),
        (bool(parsed.like) and not ours, "--like: goes with --net; a reference is recorded from its flags"),
        (bool(parsed.like and told), f"--like: the trace says what to do; leave out {', '.join(told)}"),
        (
            bool(parsed.inputs) and not parsed.net and not parsed.reference,
            "--inputs: goes with --reference or --net",
        ),
    )
    began = time.perf_counter()
    functions = load_functions(parsed, ("net", "reference", "loss", "optimizer"))
    like = load_recording(Path(parsed.like)) if parsed.like else None
    task = like.task if like else task_of(parsed)
    recording = _of_net(parsed, task, functions, like) if ours else _of_reference(parsed, task, functions)
    size = save_recording(recording, Path(parsed.out), parsed.layers)
    layers = len(recording.layers["eval"])
    print(
        f"{parsed.out}: {recording.framework}, {len(task.batches)} updates with {task.recipe.optimizer}, "
        f"{layers} layers, {size / 1e6:.1f} MB, {time.perf_counter() - began:.0f} s"
    )
    for note in recording.notes:
        print(note)
    return 0


def _parser(arguments: Sequence[str]) -> cli.Parser:
    recipe = recipe_named_in(list(arguments))
    parser = cli.Parser("parity record", "Record what a net computes in a few updates.", _EXAMPLES, "--out FOLDER")
    group = parser.add_argument_group("what is recorded")
    group.add_argument("--reference", metavar="FILE:FUNCTION", help="a function that returns a torch Module")
    group.add_argument("--net", metavar="FILE:FUNCTION", help="a function that returns a MindSpore Cell")
    group.add_argument(
        "--model", metavar="NAME", help=f"a net of this package, in PyTorch; default the recipe's, {recipe.model}"
    )
    group.add_argument("--like", metavar="TRACE", help="with --net: the task and the weights of another trace")
    add_task_flags(parser, recipe)
    cli.add_device_flags(parser)
    group = parser.add_argument_group("what is written")
    group.add_argument("--out", metavar="FOLDER", help="a new folder")
    group.add_argument(
        "--layers",
        choices=("all", "none"),
        default="all",
        help="none: without the layers' outputs: the first that differs is not named, and nets must agree in names",
    )
    return parser


def _of_reference(parsed: argparse.Namespace, task: Task, functions: dict[str, Any]) -> Recording:
    torch = import_extra("torch", "recording a reference")
    from resnet_fn.parity.commands.sides import reference_of
    from resnet_fn.parity.torch_side.recording import record_reference

    keep_freed()
    torch.manual_seed(task.seed)
    if parsed.threads:
        torch.set_num_threads(parsed.threads)
    if "reference" in functions:
        module = returned("--reference", parsed.reference, functions["reference"](), torch.nn.Module, "a torch Module")
    else:
        shape = net_arguments(task, image_shape(parsed, task.recipe)[1])
        module = reference_of(parsed.model or task.recipe.model, shape, task.recipe.zero_init_residual)
    return record_reference(module, task, functions.get("loss"), functions.get("optimizer"))


def _of_net(parsed: argparse.Namespace, task: Task, functions: dict[str, Any], like: Recording | None) -> Recording:
    from resnet_fn.parity.commands.sides import build_net, start
    from resnet_fn.parity.mindspore_side.parameters import assign
    from resnet_fn.parity.mindspore_side.recording import record_net
    from resnet_fn.parity.replay import names_of

    start(parsed, task.seed)
    net = build_net(functions["net"], parsed.net, "", task, 0)
    if like is not None:
        names = names_of(net, like)
        if names.problems:
            raise ValueError(f"--like: {parsed.like} is of another net: {'; '.join(names.problems[:3])}")
        assign(net, names.rename(like.trace.start))
    make_ours = functions.get("optimizer")
    return record_net(net, task, loss=functions.get("loss"), optimizer=make_ours(net) if make_ours else None)
