"""What micro-batches cost: the same number of samples per turn, one micro-batch an update against several."""

import argparse
import statistics
from typing import Any

from resnet_fn.benchmark.interleave import Side, interleave, ratios
from resnet_fn.benchmark.nets import add_net_arguments, add_threads, specification

DESCRIPTION = "Memory and time of an update of K micro-batches against updates of one."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `benchmark accumulation`."""
    add_net_arguments(parser)
    parser.add_argument("--accumulate", type=int, default=8, metavar="K", help="micro-batches; default 8")
    add_threads(parser)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure what the flags say."""
    return measure(options.net, options.accumulate, options.rounds, options.threads)


def measure(net: str, accumulate: int, rounds: int, threads: int) -> dict[str, Any]:
    """Measure one net, micro-batches of one size on both sides.

    Args:
        net: a key of nets.NETS; its batch is the micro-batch.
        accumulate: micro-batches of one update.
        rounds: turns of each side.
        threads: CPU threads of each side, 0 for its default.

    Returns:
        JSON types: "seconds_per_sample" by side ("one", "several") and round, "cost" (several's median over one's),
        "peak_bytes" by side, "gradient_bytes" of one set, and "memory": several's peak over one's plus one set.
    """
    spec = specification(net, threads)
    several = {**spec, "accumulate": accumulate, "batch_size": accumulate * spec["batch_size"]}
    one, more = Side("ours", spec, name="one"), Side("ours", several, name="several")
    try:
        # An update of several takes as long as so many of one.
        interleave([one], 1, accumulate)
        interleave([more], 1, 2)
        seconds: dict[str, list[float]] = {"one": [], "several": []}
        for _ in range(rounds):
            seconds["one"] += [time / spec["batch_size"] for time in interleave([one], 1, accumulate)["one"]]
            seconds["several"] += [time / several["batch_size"] for time in interleave([more], 1, 1)["several"]]
        facts = {"one": one.facts(), "several": more.facts()}
    finally:
        one.close()
        more.close()
    peaks = {name: fact["peak_bytes"] for name, fact in facts.items()}
    gradients = facts["one"]["gradient_bytes"]
    return {
        "net": net,
        "accumulate": accumulate,
        "seconds_per_sample": seconds,
        "cost": statistics.median(seconds["several"]) / statistics.median(seconds["one"]),
        "spread": ratios(seconds, ours="several"),
        "peak_bytes": peaks,
        "gradient_bytes": gradients,
        "memory": peaks["several"] / (peaks["one"] + gradients),
    }


def table(result: dict[str, Any]) -> str:
    """The result as text."""
    one, several = (result["peak_bytes"][name] / 2**20 for name in ("one", "several"))
    gradients = result["gradient_bytes"] / 2**20
    return "\n".join(
        [
            f"{result['net']}: an update of {result['accumulate']} micro-batches against updates of one",
            f"  time per sample: {result['cost']:.3f} x",
            f"  peak memory: {several:.0f} MiB against {one:.0f} MiB and {gradients:.0f} MiB for one set of gradients: "
            f"{result['memory']:.3f} x",
        ]
    )
