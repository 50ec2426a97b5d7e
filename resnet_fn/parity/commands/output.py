"""What a command of the ladder prints and writes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from resnet_fn.config import cli
from resnet_fn.parity.traces.batches import leaves

if TYPE_CHECKING:
    from resnet_fn.parity.ladder import Ladder
    from resnet_fn.parity.pixels import PixelDifference
    from resnet_fn.parity.traces.trace import Task


def add_output_flags(parser: cli.Parser) -> None:
    """Where the result goes, beside the screen."""
    group = parser.add_argument_group("what is written")
    group.add_argument("--json", metavar="FILE", help="write everything, every array and layer")
    group.add_argument("--figure", metavar="FILE", help="draw the error of every layer; needs resnet_fn[plots]")


def finish(
    parsed: argparse.Namespace,
    ladder: Ladder,
    task: Task,
    seconds: float,
    title: str,
    data: Sequence[PixelDifference] = (),
) -> int:
    """Print and write what was found. Returns the exit code."""
    from resnet_fn.parity import report

    print(report.name_map(ladder))
    print(report.table(ladder))
    size = len(next(leaf for _, leaf in leaves(task.batches[0][0])))
    print(f"{len(task.batches)} updates of {size} samples with {task.recipe.optimizer}, {seconds:.0f} s")
    print("not compared: which samples an update sees, and their augmentation")
    if parsed.json:
        report.write_json(ladder, parsed.json, data)
    if parsed.figure:
        report.write_plot(ladder, parsed.figure, title)
    return 0 if ladder.agrees and all(item.passes for item in data) else 1
