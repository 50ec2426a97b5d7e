"""The training step against PyTorch's and `Model.train`'s."""

import argparse
import contextlib
import statistics
from typing import Any

from resnet_fn.benchmark.interleave import Side, interleave, ratios
from resnet_fn.benchmark.nets import NET, THREADS, check_name, specification

DESCRIPTION = """The training step against others, in turns. ratio, spread: our images/s over the others', round by
round. peak_mib: peak memory of each process, imports and compiling included; memory: ours over the others'."""
OTHERS = ("torch", "torch_compile", "model_train")
FLAGS = {**NET, "against": ("torch", f"others, with commas: {', '.join(OTHERS)}"), **THREADS}


def sides_of(options: argparse.Namespace) -> tuple[str, ...]:
    """This package, then those that `--against` names."""
    others = options.against.split(",")
    for name in others:
        check_name("against", name, OTHERS)
    return "ours", *others


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure one net."""
    spec = specification(options.net, options.threads)
    kinds = sides_of(options)
    with contextlib.ExitStack() as stack:
        sides = {kind: stack.enter_context(Side(kind, spec)) for kind in kinds}
        runs = {kind: side.run for kind, side in sides.items()}
        interleave(runs, 1, spec["steps"])  # the first turn warms caches and the waiting times up
        medians = interleave(runs, options.rounds, spec["steps"])
    spread = ratios(medians)
    peaks = {kind: side.facts["peak_bytes"] / 2**20 for kind, side in sides.items()}
    return {
        "net": options.net,
        "spec": spec,
        "images_per_second": {kind: spec["batch_size"] / statistics.median(s) for kind, s in medians.items()},
        "step_seconds": medians,
        "ratio": {kind: value["median"] for kind, value in spread.items()},
        "spread": spread,
        "peak_mib": peaks,
        "memory": {kind: peaks["ours"] / peak for kind, peak in peaks.items() if kind != "ours"},
        "facts": {kind: side.facts for kind, side in sides.items()},
    }
