"""The command `inspect` shows the arrays, activations and gradients of a checkpoint, or compares
two checkpoints.
"""

import argparse
import contextlib
import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from resnet_fn.config import cli, shared_flags
from resnet_fn.config.declaration import flag_name
from resnet_fn.config.options import RunOptions
from resnet_fn.config.output_paths import file_to_write, fix_for_write, folder_to_write
from resnet_fn.config.printing import say, warn
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.wording import counted
from resnet_fn.inspect.statistics import (
    array_statistics,
    compare_arrays,
    comparison_table,
    statistics_table,
)
from resnet_fn.recipes import load_recipe
from resnet_fn.runtime import process
from resnet_fn.runtime.disk import finite_or_null
from resnet_fn.runtime.outputs import check_output, has_keys, write_output

_EXAMPLES = """examples:
  python -m resnet_fn.inspect runs/first                       statistics of every parameter
  python -m resnet_fn.inspect ours.safetensors theirs.pth      differences, the largest first
  python -m resnet_fn.inspect runs/first --activations --gradients --out-dir inside
  python -m resnet_fn.inspect net.pth --activations --recipe digits
  tensorboard --logdir inside
"""

_OF_A_BATCH = ("recipe", "model", "stem", "data_dir", "batch_size")
# The keys of what `--json` writes: about parameters, activations and gradients, or two checkpoints.
_RESULTS = (["parameters"], ["activations"], ["gradients"], ["differences", "missing"])
Write = Callable[[int, str, str, np.ndarray], None]  # a histogram: update, kind, name, values


def main(arguments: Sequence[str]) -> int:
    """Print the tables that the flags choose, and write histograms (--out-dir) and statistics
    (--json).
    """
    parsed = _parser().parse(arguments)
    how = _check(parsed)
    if parsed.json:
        with cli.as_usage_error():
            check_output("--json", parsed.json, has_keys(*_RESULTS))
    process.prepare(parsed.device, parsed.threads)
    from resnet_fn.telemetry.board import EventFile

    board = EventFile(parsed.out_dir) if parsed.out_dir else None
    with contextlib.closing(board) if board else contextlib.nullcontext():
        write = partial(_add_histogram, board)
        if parsed.other:
            compared = compare_arrays(
                *(_read(file, parsed.which).arrays for file in (parsed.checkpoint, parsed.other))
            )
            say(*comparison_table(compared))
            result = dataclasses.asdict(compared)
        elif parsed.activations or parsed.gradients:
            result = _inside(parsed, how, write)
        else:
            result = _parameters(parsed.checkpoint, parsed.which, write)
    if board and board.error is not None:
        raise ValueError(
            f"out_dir: {parsed.out_dir} cannot be written ({board.error.strerror}); "
            f"{fix_for_write(board.error)}"
        )
    if parsed.json:
        write_output(
            parsed.json, json.dumps(finite_or_null(result), indent=1, allow_nan=False) + "\n"
        )
    return 0


def _parser() -> cli.Parser:
    about = (
        "Show the parameters, activations or gradients of a checkpoint, or compare two checkpoints."
    )
    parser = cli.Parser("inspect", about, _EXAMPLES, "CHECKPOINT [OTHER]")
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", help="a run or checkpoint folder, or a weight file"
    )
    parser.add_argument(
        "other", metavar="OTHER", nargs="?", help="compare with these MindSpore or PyTorch weights"
    )
    parser.add_argument(
        "--activations", action="store_true", help="show layer outputs on validation images"
    )
    parser.add_argument(
        "--gradients", action="store_true", help="show gradients on the next training batch"
    )
    parser.add_argument("--batch-size", type=int, metavar="N", help="number of samples; default 32")
    parser.add_argument("--recipe", metavar="NAME", help="recipe (name or file) for a weight file")
    parser.add_argument("--model", metavar="NAME", help="use this net instead of the recipe's net")
    parser.add_argument("--stem", metavar="NAME", help="use this stem instead of the recipe's stem")
    parser.add_argument(
        "--data-dir", metavar="PATH", help="data set; default: the folder used in training"
    )
    parser.add_argument("--which", **shared_flags.WHICH)
    parser.add_argument(
        "--out-dir", type=folder_to_write, metavar="PATH", help="write TensorBoard histograms"
    )
    parser.add_argument(
        "--json", type=file_to_write, metavar="FILE", help="write statistics (NaN, inf as null)"
    )
    shared_flags.add_device_flags(parser)
    return parser


def _check(parsed: argparse.Namespace) -> dict[str, Any]:
    """Check the flags, and return the keyword arguments of `open_net`."""
    runs = parsed.activations or parsed.gradients
    size = parsed.batch_size
    flags = [f"--{flag_name(name)}" for name in _OF_A_BATCH if getattr(parsed, name) is not None]
    changes = {
        name: getattr(parsed, name)
        for name in ("model", "stem")
        if getattr(parsed, name) is not None
    }
    folder = Path(parsed.checkpoint).is_dir()
    folders = folder or Path(f"{parsed.other}").is_dir()
    bare = runs and not folder
    of_file = parsed.recipe or changes
    message = "--activations, --gradients and --out-dir look at one checkpoint; leave out OTHER"
    cli.raise_usage_errors(
        (
            flags and not runs,
            f"{', '.join(flags)}: needs --activations or --gradients; give one of them",
        ),
        (parsed.other and (runs or parsed.out_dir), message),
        (size is not None and size < 1, f"--batch-size: {size} is too small; give 1 or more"),
        (
            parsed.which == "best" and not folders,
            "--which is for run folders only; leave --which out",
        ),
        (
            runs and folder and of_file,
            "--recipe, --model and --stem are for weight files; leave them out",
        ),
        (
            bare and not parsed.recipe,
            "a weight file contains neither the data nor the net; give --recipe NAME",
        ),
    )
    if not bare:
        return {"which": parsed.which, "data_dir": parsed.data_dir or ""}
    with cli.as_usage_error():
        file = load_recipe(parsed.recipe).complete(**changes)
    return {
        "recipe": file.make(Recipe),
        "data_dir": parsed.data_dir or "",
        "options": file.make(RunOptions),
    }


def _add_histogram(board: Any, update: int, kind: str, name: str, values: np.ndarray) -> None:
    # a histogram cannot show NaN and infinity
    if board and (finite := values[np.isfinite(values)]).size:
        # TensorBoard's names cannot have brackets: "layer1.0.relu (2)" becomes layer1.0.relu.call2.
        tag = f"{kind}/{name}".replace(" (", ".call").rstrip(")")
        board.add_histogram(tag, finite, update)


def _read(file: str, which: str) -> Any:
    """Read weights from a file or a folder as a `WeightFile`, and print a line about the
    weights.
    """
    from resnet_fn.weights.load import UNKNOWN_STYLE, read_any_weights

    # one of two may be a file
    source = read_any_weights(file, which if Path(file).is_dir() else "last")
    names = {UNKNOWN_STYLE: "unknown names", "ours": "this package's names"}.get(
        source.style, f"{source.style} names"
    )
    average = ", moving average of the weights" if source.averaged else ""
    first = f"{source.path}: {source.model + ', ' if source.model else ''}{names}{average}"
    say(first, *source.notes)
    if source.warning:
        warn(f"{source.path}: {source.warning}")
    return source


def _parameters(file: str, which: str, write: Write) -> dict[str, Any]:
    source = _read(file, which)
    rows = [array_statistics(name, array) for name, array in source.arrays.items()]
    for name, array in source.arrays.items():
        write(source.update, "weights", name, array)
    values = sum(array.size for array in source.arrays.values())
    say(*statistics_table(rows, "parameter", dtype=True))
    say(f"{counted(len(rows), 'array')}, {counted(values, 'value')}")
    return {"parameters": [dataclasses.asdict(row) for row in rows]}


def _inside(parsed: argparse.Namespace, how: dict[str, Any], write: Write) -> dict[str, Any]:
    from resnet_fn.evaluation.loaded_net import open_net
    from resnet_fn.inspect.batch import activations, gradients

    loaded, dataset = open_net(parsed.checkpoint, **how)
    if loaded.checkpoint:
        say(f"{loaded.checkpoint.path}: {loaded.recipe.model}")
    limit = parsed.batch_size or 32
    update = loaded.update
    result: dict[str, Any] = {}
    if parsed.activations:
        count, rows = activations(loaded, dataset, limit, partial(write, update))
        images = counted(count, "validation image")
        say(f"activations after update {update}, evaluation mode, {images}")
        say(*statistics_table(rows, "output of"))
        result["activations"] = [dataclasses.asdict(row) for row in rows]
    if parsed.gradients:
        measured = gradients(loaded, dataset, limit, partial(write, update))
        say(
            f"gradients after update {update}, training mode, {measured.samples} samples of the "
            f"next batch, loss {measured.loss:.4f}"
        )
        say(*statistics_table(measured.layers, "gradient at the output of"))
        say(*statistics_table(measured.parameters, "gradient of", relative=measured.relative))
        total = math.hypot(*(row.norm for row in measured.parameters))
        clip = loaded.recipe.clip_norm
        say(
            f"global norm {total:.4f}, "
            + (f"before clipping at {clip:g}" if clip else "not clipped")
        )
        result["gradients"] = dataclasses.asdict(measured)
    return result


if __name__ == "__main__":
    cli.run("inspect", main)
