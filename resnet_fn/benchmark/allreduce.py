"""What sharing an update costs: the step with and without its all-reduce, and buckets against single tensors."""

import argparse
import json
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
the step); of the gradients' all-reduce by bucket size in MiB (0: a call per tensor); and of one process with
all threads on all workers' samples."""
FLAGS = {**NET, "workers": (2, "workers")}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Start the workers, and one process before and after them."""
    one = _one_process(options)
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        command = ["-m", "resnet_fn.launch", "--workers", str(options.workers), "--", "python", "-m"]
        command += ["resnet_fn.benchmark.allreduce_worker", options.net, str(options.rounds), str(result)]
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
        if done.returncode:
            raise ValueError(f"allreduce: the workers failed ({done.stderr.strip().splitlines()[-1]})")
        found = json.loads(result.read_text())
    return {**found, "one_process_step_seconds": statistics.median(one + _one_process(options))}


def _one_process(options: argparse.Namespace) -> list[float]:
    spec = specification(options.net, 0)
    steps = spec["steps"]
    with Side("ours", {**spec, "batch_size": options.workers * spec["batch_size"]}) as side:
        side.run(steps)
        return side.run(options.rounds * steps)
