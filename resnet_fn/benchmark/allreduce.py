"""What sharing an update costs: the step with and without its all-reduce, and buckets against single tensors."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from resnet_fn.benchmark.interleave import Side
from resnet_fn.benchmark.nets import NET, specification

DESCRIPTION = """What sharing an update among workers of one machine costs, a thread and a whole batch each:
seconds of the step alone in all of them at once, and with the all-reduce (efficiency: their ratio; share: of
the step); of the gradients' all-reduce by bucket size in MiB (0: a call per tensor); of one worker alone on the
machine, on one core (weak_scaling: all workers' images/s over as many times its own); and of one process with
all threads on all workers' samples."""
FLAGS = {**NET, "workers": (2, "workers")}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Start the workers; one worker, and one process with all threads, before and after them."""
    spec = specification(options.net, 0)
    whole = {**spec, "batch_size": options.workers * spec["batch_size"]}
    cores = os.sched_getaffinity(0)
    alone: dict[str, list[float]] = {"worker": [], "process": []}

    def measure_alone() -> None:
        alone["worker"] += _one_process({**spec, "threads": 1}, options.rounds, {min(cores)})
        alone["process"] += _one_process(whole, options.rounds, cores)

    measure_alone()
    found = _workers(options)
    measure_alone()
    seconds = {kind: statistics.median(values) for kind, values in alone.items()}
    return {
        **found,
        "one_worker_step_seconds": seconds["worker"],
        "weak_scaling": seconds["worker"] / found["shared_step_seconds"],
        "one_process_step_seconds": seconds["process"],
    }


def _workers(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        command = ["-m", "resnet_fn.launch", "--workers", str(options.workers), "--", "python", "-m"]
        command += ["resnet_fn.benchmark.allreduce_worker", options.net, str(options.rounds), str(result)]
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
        if done.returncode:
            raise ValueError(f"allreduce: the workers failed ({done.stderr.strip().splitlines()[-1]})")
        return json.loads(result.read_text())


def _one_process(spec: dict[str, Any], rounds: int, cores: set[int]) -> list[float]:
    """Seconds of each step, in a process that has these cores to itself."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)  # the process inherits it
    try:
        side = Side("ours", spec)
    finally:
        os.sched_setaffinity(0, before)
    with side:
        side.run(spec["steps"])
        return side.run(rounds * spec["steps"])
