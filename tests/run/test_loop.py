"""Real msrun processes: workers change how an update is computed, not what it computes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.checkpoint.folder import load_checkpoint
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.memory_feed import MemoryFeed
from resnet_fn.data.sources.digits import load_digits

FREE = ["--model", "resnet8", "--norm", "none", "--batch-size", "240", "--epochs", "2", "--image-size", "8"]


def events(run, kind):
    lines = (Path(run) / "metrics.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def compare_runs(one, many):
    """The same samples, losses, norms and weights, but for float rounding."""
    for a, b in zip(events(one, "train"), events(many, "train"), strict=True):
        # One update differs by rounding alone; from then on each starts where the rounding of those before led.
        tolerance = 1e-5 if a["update"] == 1 else 1e-3
        for field in ("loss", "grad_norm", "accuracy"):
            assert b[field] == pytest.approx(a[field], rel=tolerance), (field, a["update"])
    a, b = (load_checkpoint(Path(run, "checkpoints/step-00000010")) for run in (one, many))
    for name, values in a.weights.items():
        assert np.linalg.norm(values - b.weights[name]) <= 1e-3 * np.linalg.norm(values), name


@pytest.mark.slow
def test_workers_and_micro_batches_compute_the_same_numbers(msrun):
    """1 worker = 2 workers with 3 micro-batches each = 8 workers, on a net without BatchNorm; then evaluation."""
    one = subprocess.run(
        [sys.executable, "-m", "resnet_fn.train", *FREE, "--out-dir", "one"], capture_output=True, timeout=300
    )
    assert one.returncode == 0, one.stderr
    msrun(2, "-m", "resnet_fn.train", *FREE, "--out-dir", "two", "--accumulate", "3")
    compare_runs("one", "two")
    log = msrun(8, "-m", "resnet_fn.train", *FREE, "--out-dir", "eight")
    assert "8 workers" in log
    assert "compiling" not in Path("logs/worker_3.log").read_text()  # rank 0 alone speaks
    compare_runs("one", "eight")

    # one net, evaluated by one worker and by two with batches that do not divide
    expected = events("one", "eval")[-1]
    msrun(2, "-m", "resnet_fn.evaluate", "--checkpoint", "one", "--batch-size", "77", "--json", "result.json")
    result = json.loads(Path("result.json").read_text())
    assert result == {key: expected[key] for key in ("loss", "top1", "top5", "count")}  # every bit


@pytest.mark.slow
def test_ranks_stay_alike_to_the_bit(msrun):
    """With BatchNorm: every rank holds the same state after each update, moving statistics included."""
    msrun(2, str(Path(__file__).parent / "drivers" / "hash_ranks.py"), os.getcwd())
    ranks = [json.loads(Path(f"rank{rank}.json").read_text()) for rank in range(2)]
    assert ranks[0]["workers"] == 2
    assert ranks[0]["state"] == ranks[1]["state"]
    assert ranks[0]["heard"] == ranks[1]["heard"] == "from rank 0: grüße"
    alone = MemoryFeed(load_digits(), Recipe(batch_size=60, image_size=8))
    for update in range(3):
        assert ranks[0]["indices"][update] + ranks[1]["indices"][update] == alone.indices(update).tolist()
