"""What frozen parts save: the same update of one net, whole and with parts that are not trained."""

import argparse
import contextlib
from typing import Any

from resnet_fn.benchmark.interleave import Side, interleave, ratios
from resnet_fn.benchmark.nets import NET, THREADS, specification

DESCRIPTION = """The compiled update of a net with nothing frozen against some of its parts frozen.
ratio: the whole update's seconds over the frozen one's, round by round; above 1 freezing is faster."""
_FROZEN = ("stem,layer1", "stem,layer1,layer2", "stem,layer?")
FLAGS = {**NET, "freeze": ("; ".join(_FROZEN), "what to freeze, one after the other, with semicolons"), **THREADS}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure one net, each time in a process of its own."""
    spec = specification(options.net, options.threads)
    wishes = ["", *(part.strip() for part in options.freeze.split(";"))]
    with contextlib.ExitStack() as stack:
        sides = {wish or "nothing": stack.enter_context(Side("ours", {**spec, "freeze": wish})) for wish in wishes}
        interleave({name: side.run for name, side in sides.items()}, 1, steps=2)  # warms up
        seconds = interleave({name: side.run for name, side in sides.items()}, options.rounds, spec["steps"])
    whole = seconds["nothing"]
    return {
        "net": options.net,
        "step_seconds": seconds,
        "ratio": {wish: ratios({"ours": seconds[wish], "whole": whole})["whole"] for wish in wishes[1:]},
    }
