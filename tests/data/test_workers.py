"""Real msrun workers on image files: one of them bad, sizes that do not divide, an average that is evaluated."""

import json
from pathlib import Path

import pytest

from resnet_fn.evaluation.evaluate import evaluate

FLAGS = (
    *("--dataset", "imagefolder", "--image-size", "16", "--model", "resnet8", "--batch-size", "8", "--epochs", "2"),
    *("--max-shift", "0", "--max-rotation", "0", "--max-zoom", "0", "--flip", "--mixup", "0.2", "--ema", "0.8"),
    *("--on-bad-sample", "skip", "--no-progress", "--out-dir", "run", "--eval-batch-size", "4"),
)


@pytest.mark.slow
def test_two_workers_skip_alike_and_score_every_file_once(folder, msrun):
    (folder / "train" / "bee" / "00 ü.JPEG").write_bytes(b"\xff\xd8 cut")
    (folder / "val" / "bee" / "01 ü.JPEG").write_bytes(b"")
    log = msrun(2, "-m", "resnet_fn.train", "--data-dir", str(folder), *FLAGS)
    assert "skipping 1 of 21 training files: " in log
    assert "00 ü.JPEG' is cut or damaged" in log
    events = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    scores = [event for event in events if event["event"] == "eval"]
    assert [event["count"] for event in scores] == [8, 8]
    assert sum(event["event"] == "train" for event in events) == 2 * (20 // 8)
    alone = evaluate("run")
    assert alone == {name: scores[-1][name] for name in alone}  # every bit
    assert len(Path("run/bad_files.txt").read_text().splitlines()) == 2
