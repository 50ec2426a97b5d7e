"""Time to an accuracy: whole processes on the digits, ours against the same net, data and recipe in PyTorch."""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from resnet_fn.runtime.extras import import_extra

DESCRIPTION = """Seconds of the whole process to an accuracy on the digits, by seed (None: never in the
recipe's epochs), and of PyTorch's with the same data and recipe. ratio: its median over ours."""
FLAGS = {"rounds": (3, "runs of each side"), "target": (0.98, "top-1")}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Train both to the target in turns, another seed each round."""
    import_extra("torch", "benchmark time-to-accuracy")
    seconds: dict[str, list[float | None]] = {"ours": [], "torch": []}
    for seed in map(str, range(options.rounds)):
        with tempfile.TemporaryDirectory() as folder:
            ours = ["resnet_fn.train", "--seed", seed, "--out-dir", folder, "--no-progress"]
            seconds["ours"].append(_seconds_until(ours, Path(folder, "metrics.jsonl"), options.target))
            log = Path(folder, "torch.jsonl")
            theirs = ["resnet_fn.benchmark.torch_digits", seed, str(log)]
            seconds["torch"].append(_seconds_until(theirs, log, options.target))
    middle = {kind: statistics.median([v if v is not None else float("inf") for v in s]) for kind, s in seconds.items()}
    return {"target": options.target, "seconds": seconds, "ratio": {"torch": middle["torch"] / middle["ours"]}}


def reached(log: Path, target: float) -> bool:
    """Whether a log, which may be in the middle of a line, has an evaluation of at least `target` top-1."""
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    evaluations = (json.loads(line) for line in lines if '"event": "eval"' in line and line.endswith("\n"))
    return any(event["top1"] >= target for event in evaluations)


def _seconds_until(module: list[str], log: Path, target: float) -> float | None:
    """Start a process, and end it when an evaluation reaches the target; the seconds, or None."""
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen([sys.executable, "-m", *module], stdout=subprocess.DEVNULL, stderr=errors)
        try:
            while process.poll() is None:
                if reached(log, target):
                    return time.perf_counter() - began
                time.sleep(0.02)
            if process.returncode:
                errors.seek(0)
                raise ValueError(f"{module[0]}: failed ({errors.read().strip().splitlines()[-1]})")
            return time.perf_counter() - began if reached(log, target) else None
        finally:
            process.kill()
            process.wait()
