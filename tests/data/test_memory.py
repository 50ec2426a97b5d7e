"""Memory and the wait for data over the epochs of real runs, from their own logs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

NOISE = 24.0  # MB: what the allocator holds back one epoch and gives away in another; a run has about 900


def train(*flags: str) -> list[dict[str, float]]:
    """Train in a process of its own (another test's memory would blur it); its last logged update of each epoch."""
    command = [sys.executable, "-m", "resnet_fn.train", "--model", "resnet8", "--no-progress", "--out-dir", "run"]
    done = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    last = {event["epoch"]: event for event in events if event["event"] == "train"}
    return [last[epoch] for epoch in sorted(last)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["digits", "imagefolder"])
def test_memory_does_not_grow_over_twenty_epochs(kind, folder):
    plain = ("--dataset", kind, "--data-dir", str(folder), "--image-size", "64", "--batch-size", "4", "--flip")
    still = ("--max-shift", "0", "--max-rotation", "0", "--max-zoom", "0")
    epochs = train("--epochs", "20", *((*plain, *still) if kind == "imagefolder" else ()))
    memory = [event["memory_mb"] for event in epochs]
    assert len(memory) == 20
    assert max(memory[2:]) - memory[1] < NOISE, memory
