"""Seconds from the command to the end of the first update: start Python, import, build, compile,
compute.
"""

import argparse
import statistics
from functools import partial
from typing import Any

from interleave import Side, interleave
from nets import NET, THREADS, specification
from step import AGAINST, sides_of

DESCRIPTION = """Seconds from the command to the end of the first update, each side started anew, in turns.
ratio: the others' median over ours."""
FLAGS = {**NET, **AGAINST, **THREADS}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Start each side anew, in turns."""
    spec = specification(options.net, options.threads)

    def start(kind: str, _: int) -> list[float]:
        with Side(kind, spec) as side:
            return [side.facts["ready_seconds"]]

    runs = {kind: partial(start, kind) for kind in sides_of(options)}
    seconds = interleave(runs, options.rounds)
    medians = {kind: statistics.median(values) for kind, values in seconds.items()}
    ratio = {kind: medians[kind] / medians["ours"] for kind in medians if kind != "ours"}
    return {"net": options.net, "spec": spec, "seconds": seconds, "ratio": ratio}
