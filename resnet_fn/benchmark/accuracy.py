"""Time to an accuracy: whole processes on the digits, ours against the same net, data and recipe in PyTorch."""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TARGET = 0.98


DESCRIPTION = "Time of the whole process to an accuracy on the digits, against PyTorch with the same data and recipe."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `benchmark time-to-accuracy`."""
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="runs of each side; default 3")
    parser.add_argument("--target", type=float, default=TARGET, metavar="X", help=f"top-1; default {TARGET}")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure what the flags say."""
    return measure(options.rounds, options.target)


def measure(rounds: int, target: float = TARGET) -> dict[str, Any]:
    """Train both to the target in turns, another seed each round.

    Args:
        rounds: runs of each side.
        target: top-1 of the test images, a fraction of 1.

    Returns:
        JSON types: "seconds" from the process's start to the first evaluation at the target, by side (null: never in
        the recipe's epochs), and "ratio": PyTorch's median over ours (above 1 we are there first).
    """
    seconds: dict[str, list[float | None]] = {"ours": [], "torch": []}
    for seed in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            ours = ("resnet_fn.train", "--seed", str(seed), "--out-dir", folder, "--no-progress")
            seconds["ours"].append(_until(ours, _evaluations(Path(folder, "metrics.jsonl")), target))
            log = Path(folder, "torch.jsonl")
            theirs = ("resnet_fn.benchmark.torch_digits", str(seed), str(log))
            seconds["torch"].append(_until(theirs, _evaluations(log), target))
    middle = {kind: statistics.median([v if v is not None else float("inf") for v in s]) for kind, s in seconds.items()}
    return {"target": target, "seconds": seconds, "ratio": {"torch": middle["torch"] / middle["ours"]}}


def _evaluations(log: Path) -> Iterator[float | None]:
    """The top-1 of each evaluation as it appears in the log; None while there is nothing new."""
    seen = 0
    while True:
        lines = log.read_text().splitlines(keepends=True) if log.exists() else []
        new = [line for line in lines[seen:] if line.endswith("\n")]
        seen += len(new)
        for line in new:
            event = json.loads(line)
            if event["event"] == "eval":
                yield event["top1"]
        yield None


def _until(module: tuple[str, ...], evaluations: Iterator[float | None], target: float) -> float | None:
    """Start a process, and end it when an evaluation reaches the target; the seconds, or None."""
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen([sys.executable, "-m", *module], stdout=subprocess.DEVNULL, stderr=errors)
        try:
            while True:
                ended = process.poll() is not None
                for top1 in evaluations:
                    if top1 is None:
                        break
                    if top1 >= target:
                        return time.perf_counter() - began
                if ended:
                    if process.returncode:
                        errors.seek(0)
                        raise ValueError(f"{module[0]}: failed ({errors.read().strip().splitlines()[-1]})")
                    return None
                time.sleep(0.02)
        finally:
            process.kill()
            process.wait()


def table(result: dict[str, Any]) -> str:
    """The result as text."""
    lines = [f"seconds of the whole process to {result['target']:.0%} top-1 on the digits, by seed"]
    for kind, values in result["seconds"].items():
        shown = ", ".join("never" if value is None else f"{value:.1f}" for value in values)
        lines.append(f"  {kind:8}{shown}")
    lines.append(f"  PyTorch's median over ours: {result['ratio']['torch']:.2f}")
    return "\n".join(lines)
