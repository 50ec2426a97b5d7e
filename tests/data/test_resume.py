"""A run on image files that is killed inside an epoch and resumed, against the unbroken one."""

import hashlib
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.checkpoint.folder import load_checkpoint
from resnet_fn.train import parse

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
    names = [f"{name}/{k:02d} ü.JPEG" for name in ("bee", "cat with a space", "éléphant") for k in range(7)]
    files = hashlib.sha256("\0".join(names).encode() + np.repeat(np.arange(3, dtype=np.int32), 7).tobytes())
    expected = {"samples": 21, "files": files.hexdigest(), "data_threads": 1, "workers": 1}
    assert one.state["feed"] == expected


@pytest.mark.usefixtures("device")
def test_a_class_folder_that_was_renamed_is_refused_before_anything_changes(folder, capsys):
    """The classes are sorted by name: "zebra" puts the others' labels one lower."""
    from resnet_fn import train

    def run(*more: str) -> None:
        train(*parse([*FLAGS, "--epochs", "1", "--data-dir", str(folder), "--out-dir", "run", *more]))

    run()
    for half in ("train", "val"):
        (folder / half / "bee").rename(folder / half / "zebra")
    before = {path: path.stat().st_mtime_ns for path in Path("run").rglob("*") if path.name != "lock"}
    with pytest.raises(ValueError) as caught:
        run()
    difference = "classes 'bee' → 'cat with a space', 'cat with a space' → 'zebra'"
    text = f"another training set than the checkpoint's ({difference})"
    assert str(caught.value) == f"resume: {text}; give the same data, another --out-dir, or --allow-other-data"
    assert {path: path.stat().st_mtime_ns for path in Path("run").rglob("*") if path.name != "lock"} == before
    run("--allow-other-data")
    assert f"resuming with {text}\n" in capsys.readouterr().out
