"""From the command to the end of the first update: start Python, import, build, compile, compute."""

import argparse
import statistics
from collections.abc import Sequence
from typing import Any

from resnet_fn.benchmark.interleave import Side
from resnet_fn.benchmark.nets import specification
from resnet_fn.benchmark.step import add_arguments

__all__ = ["DESCRIPTION", "add_arguments", "measure", "run", "table"]


DESCRIPTION = "From the command to the end of the first update, in turns with others."


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure what the flags say."""
    return measure(options.net, options.against, options.rounds, options.threads)


def measure(net: str, against: Sequence[str], rounds: int, threads: int) -> dict[str, Any]:
    """Start each side anew, in turns.

    Args:
        net: a key of nets.NETS.
        against: kinds of sides.KINDS to compare with.
        rounds: starts of each side.
        threads: CPU threads of each side, 0 for each one's own default.

    Returns:
        JSON types: "seconds" to the end of the first step by side, one for each round, and "ratio": their median
        over ours (above 1 we start faster).
    """
    spec = specification(net, threads)
    seconds: dict[str, list[float]] = {kind: [] for kind in ("ours", *against)}
    for _ in range(rounds):
        for kind in seconds:
            side = Side(kind, spec)
            seconds[kind].append(side.ready_seconds)
            side.close()
    own = statistics.median(seconds["ours"])
    ratio = {kind: statistics.median(values) / own for kind, values in seconds.items() if kind != "ours"}
    return {"net": net, "spec": spec, "seconds": seconds, "ratio": ratio}


def table(result: dict[str, Any]) -> str:
    """The result as text."""
    lines = [f"{result['net']}: seconds from the command to the end of the first update, median [min, max]"]
    for kind, values in result["seconds"].items():
        lines.append(f"  {kind:14}{statistics.median(values):8.1f} [{min(values):.1f}, {max(values):.1f}]")
    return "\n".join(lines)
