"""python -m resnet_fn.parity: the ladder with both frameworks in one process."""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from resnet_fn.config import cli
from resnet_fn.parity.commands.flags import add_task_flags, image_shape, net_arguments, recipe_named_in, task_of
from resnet_fn.parity.commands.functions import is_place, load_functions, returned
from resnet_fn.parity.commands.output import add_output_flags, finish
from resnet_fn.parity.commands.sides import add_net_flags, build_net, corrections_in, reference_of, start
from resnet_fn.parity.matching.corrections import Corrections
from resnet_fn.parity.traces.trace import Task
from resnet_fn.runtime.extras import import_extra

_EXAMPLES = """examples:
  python -m resnet_fn.parity --model resnet50 --image-size 64 --batch-size 4 --steps 5
  python -m resnet_fn.parity --model resnet8 --steps 20 --json ladder.json --figure ladder.png
  python -m resnet_fn.parity --reference torch_net.py:build --net ported.py:build --optimizer adamw

with PyTorch on one machine and MindSpore on another (--help of each says more):
  python -m resnet_fn.parity record --reference torch_net.py:build --out trace
  python -m resnet_fn.parity replay trace --net ported.py:build
  python -m resnet_fn.parity compare trace-a trace-b

exit code 0: both compute the same; 1: they do not, and the output says where it starts.
"""


def _parser(arguments: Sequence[str]) -> cli.Parser:
    recipe = recipe_named_in(list(arguments))
    parser = cli.Parser("parity", "Compare a net and one training step with PyTorch, stage by stage.", _EXAMPLES, "")
    group = parser.add_argument_group("what is compared")
    group.add_argument("--model", metavar="NAME", help=f"a net of this package; default the recipe's, {recipe.model}")
    group.add_argument("--net", metavar="FILE:FUNCTION", help="your own: a function that returns a MindSpore Cell")
    group.add_argument(
        "--reference",
        metavar="FILE:FUNCTION",
        help="a function that returns a torch Module; default --model in PyTorch",
    )
    add_net_flags(group)
    group.add_argument(
        "--data", nargs="*", metavar="JPEG", help="decoding and preprocessing too; on generated JPEGs if none is named"
    )
    add_task_flags(parser, recipe)
    cli.add_device_flags(parser)
    add_output_flags(parser)
    return parser


def live(arguments: Sequence[str]) -> int:
    """Check the flags, then compare both nets. Returns 1 if they differ."""
    parsed = _parser(arguments).parse(arguments)
    cli.refuse(
        (
            bool(parsed.net) and not parsed.reference,
            "--net: needs --reference FILE:FUNCTION, the torch module that it was ported from",
        ),
        (bool(parsed.net) and bool(parsed.model), "--net: give it or --model, not both"),
        (bool(parsed.inputs) and not parsed.net, "--inputs: goes with --net and --reference"),
        *(
            (
                is_place(getattr(parsed, name) or "") and not getattr(parsed, f"our_{name}"),
                f"--{name}: needs --our-{name} FILE:FUNCTION, MindSpore's side of it",
            )
            for name in ("loss", "optimizer")
        ),
    )
    task = task_of(parsed)
    functions = load_functions(parsed, ("net", "reference", "loss", "optimizer", "our_loss", "our_optimizer"))
    if parsed.figure:
        import_extra("matplotlib", "--figure", "plots")
    files = []
    for name in parsed.data or ():
        try:
            files.append(Path(name).read_bytes())
        except OSError as error:
            raise cli.UsageError(f"--data: {name} cannot be read ({error.strerror}); name JPEG files") from None
    return _compare(parsed, task, functions, files, corrections_in(parsed))


def _compare(
    parsed: argparse.Namespace,
    task: Task,
    functions: dict[str, Any],
    files: Sequence[bytes],
    corrections: Corrections | None,
) -> int:
    torch = import_extra("torch", "the parity ladder")
    from resnet_fn.parity import pixels
    from resnet_fn.parity.replay import compare_step
    from resnet_fn.runtime.cpus import cpu_count

    began = time.perf_counter()
    start(parsed, task.seed)
    torch.manual_seed(task.seed)
    # Two pools of threads that spin for the same cores slow each other down tenfold; torch's work is the smaller.
    torch.set_num_threads(max(1, cpu_count() // 2))
    data = [] if parsed.data is None else pixels.data_stage(files)
    if data:
        print(pixels.table(data), flush=True)
    recipe = task.recipe
    model = parsed.model or recipe.model
    classes = image_shape(parsed, recipe)[1]
    if "reference" in functions:
        reference = returned(
            "--reference", parsed.reference, functions["reference"](), torch.nn.Module, "a torch Module"
        )
    else:
        reference = reference_of(model, net_arguments(task, classes), recipe.zero_init_residual)
    net = build_net(functions.get("net"), parsed.net, model, task, classes)
    make_ours = functions.get("our_optimizer")
    ladder = compare_step(
        net,
        reference,
        task.batches,
        recipe,
        accumulate=task.accumulate,
        seed=task.seed,
        loss=functions.get("our_loss"),
        optimizer=make_ours(net) if make_ours else None,
        reference_loss=functions.get("loss"),
        reference_optimizer=functions.get("optimizer"),
        initialisation=not parsed.no_initialisation and recipe.initialisation == "torchvision",
        corrections=corrections,
    )
    title = f"{parsed.net or model}: error of every layer's output"
    return finish(parsed, ladder, task, time.perf_counter() - began, title, data)
