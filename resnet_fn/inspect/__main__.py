"""The command `inspect` shows the parameters of a checkpoint, or compares two checkpoints."""

import contextlib
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from resnet_fn.config import cli, shared_flags
from resnet_fn.config.output_paths import file_to_write, fix_for_write, folder_to_write
from resnet_fn.config.printing import say, warn
from resnet_fn.config.wording import counted
from resnet_fn.inspect.statistics import (
    array_statistics,
    compare_arrays,
    comparison_table,
    statistics_table,
)
from resnet_fn.runtime.disk import finite_or_null
from resnet_fn.runtime.outputs import check_output, has_keys, write_output

_EXAMPLES = """examples:
  python -m resnet_fn.inspect runs/first                       statistics of every parameter
  python -m resnet_fn.inspect ours.safetensors theirs.pth      differences, the largest first
  python -m resnet_fn.inspect runs/first --out-dir inside      histograms for TensorBoard
"""

# The keys of what `--json` writes: about parameters, or two checkpoints.
_RESULTS = (["parameters"], ["differences", "missing"])


def main(arguments: Sequence[str]) -> int:
    """Print a table, and write histograms (--out-dir) and statistics (--json)."""
    parsed = _parser().parse(arguments)
    folders = Path(parsed.checkpoint).is_dir() or Path(f"{parsed.other}").is_dir()
    cli.raise_usage_errors(
        (parsed.other and parsed.out_dir, "--out-dir looks at one checkpoint; leave out OTHER"),
        (
            parsed.which == "best" and not folders,
            "--which is for run folders only; leave --which out",
        ),
    )
    if parsed.json:
        with cli.as_usage_error():
            check_output("--json", parsed.json, has_keys(*_RESULTS))
    from resnet_fn.telemetry.board import EventFile

    board = EventFile(parsed.out_dir) if parsed.out_dir else None
    with contextlib.closing(board) if board else contextlib.nullcontext():
        if parsed.other:
            compared = compare_arrays(
                *(_read(file, parsed.which).arrays for file in (parsed.checkpoint, parsed.other))
            )
            say(*comparison_table(compared))
            result = dataclasses.asdict(compared)
        else:
            result = _parameters(parsed.checkpoint, parsed.which, board)
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
    parser = cli.Parser(
        "inspect",
        "Show the parameters of a checkpoint, or compare two checkpoints.",
        _EXAMPLES,
        "CHECKPOINT [OTHER]",
    )
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", help="a run or checkpoint folder, or a weight file"
    )
    parser.add_argument(
        "other", metavar="OTHER", nargs="?", help="compare with these MindSpore or PyTorch weights"
    )
    parser.add_argument("--which", **shared_flags.WHICH)
    parser.add_argument(
        "--out-dir", type=folder_to_write, metavar="PATH", help="write TensorBoard histograms"
    )
    parser.add_argument(
        "--json", type=file_to_write, metavar="FILE", help="write statistics (NaN, inf as null)"
    )
    return parser


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
    first = f"{source.path}: {source.model + ', ' if source.model else ''}{names}"
    if source.averaged:
        first += ", moving average of the weights"
    say(first, *source.notes)
    if source.warning:
        warn(f"{source.path}: {source.warning}")
    return source


def _parameters(file: str, which: str, board: Any) -> dict[str, Any]:
    source = _read(file, which)
    rows = []
    for name, array in source.arrays.items():
        rows.append(array_statistics(name, array))
        if board:
            finite = array[np.isfinite(array)]  # a histogram cannot show NaN and infinity
            if finite.size:
                board.add_histogram(f"weights/{name}", finite, source.update)
    values = sum(array.size for array in source.arrays.values())
    say(*statistics_table(rows), f"{counted(len(rows), 'array')}, {counted(values, 'value')}")
    return {"parameters": [dataclasses.asdict(row) for row in rows]}


if __name__ == "__main__":
    cli.run("inspect", main)
