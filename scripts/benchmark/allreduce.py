"""The cost of several workers: the step with and without its all-reduce, and many workers against
one.

Each worker is this module: `python allreduce.py NET ROUNDS RESULT_FILE`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from interleave import Side, interleave, timed
from nets import NET, build, specification
from resnet_fn.runtime import instructions
from resnet_fn.runtime.workers import Workers
from sides import our_step, start

DESCRIPTION = """The cost of several workers on one machine, with a thread and a whole batch each. Seconds of the
step in all of them at once, without and with the all-reduce (efficiency: their ratio; share: its part of the
step); of one worker alone on one core (weak_scaling: the workers' images/s over as many times its own); and of
one process with all threads on all workers' samples."""
FLAGS = {**NET, "workers": (2, "workers")}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the workers; before and after them one worker, and one process with all threads."""
    spec = specification(options.net, 0)
    whole = {**spec, "batch_size": options.workers * spec["batch_size"]}
    cores = os.sched_getaffinity(0)
    alone: dict[str, list[float]] = {"worker": [], "process": []}

    def measure_alone() -> None:
        alone["worker"] += _one_process({**spec, "threads": 1}, options.rounds, {min(cores)})
        alone["process"] += _one_process(whole, options.rounds, cores)

    measure_alone()
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        command = ["-m", "resnet_fn.launch", "--workers", str(options.workers), "--", "python"]
        command += [__file__, options.net, str(options.rounds), str(result)]
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
        if done.returncode:
            raise ValueError(
                f"allreduce: the workers failed ({done.stderr.strip().splitlines()[-1]})"
            )
        together = json.loads(result.read_text())
    measure_alone()
    seconds = {kind: statistics.median(values) for kind, values in alone.items()}
    return {
        **together,
        "one_worker_step_seconds": seconds["worker"],
        "weak_scaling": seconds["worker"] / together["shared_step_seconds"],
        "one_process_step_seconds": seconds["process"],
    }


def _one_process(spec: dict[str, Any], rounds: int, cores: set[int]) -> list[float]:
    """Seconds of each step, in a process that runs on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)  # the process inherits it
    try:
        side = Side("ours", spec)
    finally:
        os.sched_setaffinity(0, before)
    with side:
        side.run(spec["steps"])
        return side.run(rounds * spec["steps"])


def measure(net_name: str, rounds: int) -> tuple[Workers, dict[str, Any]]:
    """One worker: the step alone (nothing exchanged) and with the all-reduce in turns, on all ranks
    at once.
    """
    spec = specification(net_name, threads=1)
    workers = start(spec)
    alone, shared = our_step(build(spec), spec), our_step(build(spec), spec, workers)
    runs = {"alone": timed(alone), "shared": timed(shared)}
    interleave(runs, 1, steps=3)  # compile, warm up
    seconds = interleave(runs, rounds, spec["steps"])
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    efficiency = middle["alone"] / middle["shared"]
    return workers, {
        "net": net_name,
        "workers": workers.size,
        "convolutions": instructions.choice().convolutions,
        "samples": spec["batch_size"],
        "step_seconds": middle["alone"],
        "shared_step_seconds": middle["shared"],
        "efficiency": efficiency,
        "share": 1 - efficiency,
    }


if __name__ == "__main__":
    ranks, measured = measure(sys.argv[1], int(sys.argv[2]))
    if ranks.is_main:
        Path(sys.argv[3]).write_text(json.dumps(measured))
