"""What sharing an update costs: the step with and without its all-reduce, and buckets against single tensors."""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from resnet_fn.benchmark.interleave import Side
from resnet_fn.benchmark.nets import add_net_arguments, specification

DESCRIPTION = "What sharing an update among workers of one machine costs."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `benchmark allreduce`."""
    add_net_arguments(parser)
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="default 2")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure what the flags say."""
    return measure(options.net, options.workers, options.rounds)


def measure(net: str, workers: int, rounds: int) -> dict[str, Any]:
    """Start workers on this machine, one CPU thread each, and measure in all of them at once.

    Args:
        net: a key of nets.NETS; each worker takes its whole batch (weak scaling).
        workers: how many.
        rounds: turns of each form.

    Returns:
        JSON types of rank 0: median seconds of the step alone (all ranks at once, nothing exchanged), of the step
        with the all-reduce, the scaling efficiency (their ratio), the all-reduce's share of the step, and the seconds
        of the gradients' all-reduce alone by bucket size in MiB (0: one call per tensor). And of one process with
        all the threads on all workers' samples, before and after: "one_process_step_seconds".
    """
    one = _one_process(net, workers, rounds)
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        here = Path(sys.executable).parent
        done = subprocess.run(
            [
                *("msrun", "--worker_num", str(workers), "--local_worker_num", str(workers), "--join", "True"),
                *("--log_dir", f"{folder}/logs", "--master_port", str(port), "python", "-m"),
                *("resnet_fn.benchmark.allreduce_worker", net, str(rounds), f"{folder}/result.json"),
            ],
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": f"{here}:{os.environ['PATH']}"},
        )
        result = Path(folder, "result.json")
        if done.returncode or not result.exists():
            log = Path(folder, "logs", "worker_0.log")
            tail = log.read_text().strip().splitlines()[-1] if log.exists() else done.stderr.strip()
            raise ValueError(f"allreduce: the workers failed ({tail})")
        figures = json.loads(result.read_text())
    figures["one_process_step_seconds"] = statistics.median(one + _one_process(net, workers, rounds))
    return figures


def _one_process(net: str, workers: int, rounds: int) -> list[float]:
    spec = specification(net, 0)
    spec["batch_size"] *= workers
    side = Side("ours", spec)
    try:
        side.run(spec["steps"])
        return side.run(rounds * spec["steps"])
    finally:
        side.close()


def table(result: dict[str, Any]) -> str:
    """The result as text."""
    lines = [
        f"{result['net']}, {result['workers']} workers of one thread, {result['samples']} samples each",
        f"  step alone {result['step_seconds']:.3f} s, with all-reduce {result['shared_step_seconds']:.3f} s: "
        f"efficiency {result['efficiency']:.2f}, all-reduce share {result['share']:.1%}",
    ]
    one, shared = result["one_process_step_seconds"], result["shared_step_seconds"]
    lines.append(f"  one process with all threads, all samples: {one:.3f} s, {one / shared:.2f} x the workers' time")
    for size, seconds in result["bucket_seconds"].items():
        what = "one call per tensor" if float(size) == 0 else f"buckets of {size} MiB"
        lines.append(f"  gradients' all-reduce, {what}: {seconds * 1000:.1f} ms")
    return "\n".join(lines)
