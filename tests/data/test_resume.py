"""A run on image files that is killed inside an epoch and resumed, against the unbroken one."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from resnet_fn.checkpoint.folder import load_checkpoint

FLAGS = (
    *("--dataset", "imagefolder", "--image-size", "16", "--model", "resnet8", "--batch-size", "4", "--epochs", "4"),
    *("--max-shift", "0", "--max-rotation", "0", "--max-zoom", "0", "--flip", "--policy", "trivialaugment"),
    *("--cutmix", "1", "--erasing", "0.3", "--ema", "0.8", "--checkpoint-every", "2", "--keep-last", "9"),
    *("--data-threads", "1", "--no-progress"),
)


def start(folder: Path, run: str, *more: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "resnet_fn.train", "--data-dir", str(folder), "--out-dir", run, *FLAGS, *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_killed_inside_an_epoch_and_resumed_equals_unbroken_bit_for_bit(folder):
    broken = start(folder, "broken")
    # 21 images, batches of 4: an epoch has 5 updates, so update 8 lies inside the second.
    deadline = time.monotonic() + 120
    while not Path("broken/checkpoints/step-00000008/manifest.json").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    broken.send_signal(signal.SIGKILL)
    broken.communicate()
    stood = max(int(path.name[5:]) for path in Path("broken/checkpoints").glob("step-????????"))
    assert 8 <= stood < 20
    output, _ = start(folder, "broken").communicate(timeout=200)
    assert f"resuming after update {stood} from" in output
    start(folder, "unbroken").communicate(timeout=200)
    one, other = (load_checkpoint(Path(run, "checkpoints/step-00000020")) for run in ("broken", "unbroken"))
    for ours, theirs in ((one.weights, other.weights), (one.training, other.training)):
        assert ours.keys() == theirs.keys()
        assert all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)
    assert one.state["feed"] == {"samples": 21, "data_threads": 1, "workers": 1}
