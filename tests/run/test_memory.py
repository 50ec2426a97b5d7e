"""Memory and the wait for data over the epochs of real runs, from their own logs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

NOISE = 24.0  # MB: what the allocator holds back one epoch and gives away in another; a run has about 900


def train(*flags: str) -> dict[int, list[dict[str, float]]]:
    """Train in a process of its own (another test's memory would blur it); the logged updates of each epoch."""
    command = [sys.executable, "-m", "resnet_fn.train", "--no-progress", "--out-dir", "run"]
    done = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    epochs: dict[int, list[dict[str, float]]] = {}
    for event in map(json.loads, Path("run/metrics.jsonl").read_text().splitlines()):
        if event["event"] == "train":
            epochs.setdefault(event["epoch"], []).append(event)
    return epochs


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["digits", "imagefolder"])
def test_memory_does_not_grow_over_twenty_epochs(kind, folder):
    plain = ("--dataset", kind, "--data-dir", str(folder), "--image-size", "64", "--batch-size", "4", "--flip")
    still = ("--max-shift", "0", "--max-rotation", "0", "--max-zoom", "0")
    epochs = train("--model", "resnet8", "--epochs", "20", *((*plain, *still) if kind == "imagefolder" else ()))
    memory = [epoch[-1]["memory_mb"] for epoch in epochs.values()]
    assert len(memory) == 20
    assert max(memory[2:]) - memory[1] < NOISE, memory


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits", "cifar10_resnet18"])
def test_the_loop_never_waits_for_data(name, tmp_path, make_cifar):
    """A batch is prepared while the device computes, over an epoch's end too; only the run's first is waited for."""
    small = ()
    if name != "digits":
        make_cifar(tmp_path / "cifar", "cifar10", True, 32)
        small = ("--data-dir", str(tmp_path / "cifar"), "--milestones", "1", "--batch-size", "32")
    before = 0.0  # the step that a batch is prepared in: the update before its own; the run's first has none
    for epoch in train("--recipe", name, "--epochs", "3", "--log-every", "1", *small).values():
        seconds = sum(update["step_seconds"] for update in epoch)
        waited = prepared = 0.0
        for update in epoch:
            waited += max(0.0, update["data_seconds"] - before)
            prepared += update["data_seconds"] if before else 0.0
            before = update["step_seconds"]
        assert waited / seconds <= 0.02
        assert prepared / seconds <= 0.1  # far from where the device would wait for it
