"""The training step against PyTorch's and `Model.train`'s."""

import argparse
import contextlib
import statistics
from typing import Any

from interleave import Side, interleave, ratios
from nets import NET, THREADS, check_name, specification

DESCRIPTION = """The training step against others, in turns. ratio: our images/s over the others', the median over
all rounds; rounds: the least and the most of them; processes: the ratio of each start of both sides (MindSpore chooses
the threads of a kernel in its first launches and keeps them). peak_mib: peak memory of each side's first process,
imports and compiling included; memory: ours over the others'. ours_avx2, ours_all: ours, with oneDNN limited to AVX2 or
not (docs/benchmarks.md)."""
OTHERS = (
    "torch_channels_last",
    "torch_channels_last_compile",
    "torch",
    "torch_compile",
    "model_train",
    "ours_avx2",
    "ours_all",
)
AGAINST = {"against": (OTHERS[0], f"others, with commas: {', '.join(OTHERS)}")}
FLAGS = {**NET, "processes": (3, "starts of each side"), **AGAINST, **THREADS}
# steps of each process before it is measured: after that no kernel changes its threads
WARM_UP = 35


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
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    by_process: dict[str, list[float]] = {kind: [] for kind in kinds[1:]}
    facts: dict[str, dict[str, Any]] = {}
    for _ in range(options.processes):
        with contextlib.ExitStack() as stack:
            sides = {kind: stack.enter_context(Side(kind, spec)) for kind in kinds}
            runs = {kind: side.run for kind, side in sides.items()}
            interleave(runs, 1, WARM_UP)
            medians = interleave(runs, options.rounds, spec["steps"])
        facts = facts or {kind: side.facts for kind, side in sides.items()}
        for kind in kinds:
            seconds[kind] += medians[kind]
        for kind, ratio in ratios(medians).items():
            by_process[kind].append(ratio["median"])
    peaks = {kind: fact["peak_bytes"] / 2**20 for kind, fact in facts.items()}
    spread = ratios(seconds)
    return {
        "net": options.net,
        "spec": spec,
        "images_per_second": {
            kind: spec["batch_size"] / statistics.median(s) for kind, s in seconds.items()
        },
        "step_seconds": seconds,
        "ratio": {kind: value["median"] for kind, value in spread.items()},
        "rounds": spread,
        "processes": by_process,
        "peak_mib": peaks,
        "memory": {kind: peaks["ours"] / peak for kind, peak in peaks.items() if kind != "ours"},
        "facts": facts,
    }
