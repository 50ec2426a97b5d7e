"""What micro-batches cost: the same number of samples per turn, one micro-batch an update against several."""

import argparse
import statistics
from typing import Any

from resnet_fn.benchmark.interleave import Side, interleave, ratios
from resnet_fn.benchmark.nets import NET, THREADS, specification

DESCRIPTION = """An update of several micro-batches against updates of one, as many samples a turn. cost:
several's time per sample over one's. memory: several's peak over one's peak plus one set of gradients."""
FLAGS = {**NET, "accumulate": (8, "micro-batches"), **THREADS}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure one net, micro-batches of one size on both sides."""
    spec, count = specification(options.net, options.threads), options.accumulate
    one_batch, large_batch = spec["batch_size"], count * spec["batch_size"]
    with (
        Side("ours", spec) as one,
        Side("ours", {**spec, "accumulate": count, "batch_size": large_batch}) as several,
    ):
        runs = {
            "one": lambda turns: [seconds / one_batch for seconds in one.run(count * turns)],
            "several": lambda turns: [seconds / large_batch for seconds in several.run(turns)],
        }
        interleave(runs, 1, steps=2)  # warms caches and the waiting times up
        seconds = interleave(runs, options.rounds)
    peaks = {"one": one.facts["peak_bytes"], "several": several.facts["peak_bytes"]}
    gradients = one.facts["gradient_bytes"]
    return {
        "net": options.net,
        "accumulate": count,
        "seconds_per_sample": seconds,
        "cost": statistics.median(seconds["several"]) / statistics.median(seconds["one"]),
        "spread": ratios(seconds, ours="several"),
        "peak_bytes": peaks,
        "gradient_bytes": gradients,
        "memory": peaks["several"] / (peaks["one"] + gradients),
    }
