"""Numbers going wrong, and what is refused before anything is computed: real runs, the fault in the
data.
"""

import os
import resource
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from resnet_fn import Recipe, RunOptions
from resnet_fn.checkpoint.folder import CheckpointError, load_checkpoint
from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.data.feed import MemoryFeed
from resnet_fn.run.failures import NotFiniteError
from resnet_fn.run.loop import train

TINY = Recipe(model="resnet8", norm="none", image_size=8, batch_size=240, epochs=1)
# (What compiled updates do with such numbers: tests/update/test_step.py; a run in float32, which ends
# at the first of them: test_launcher.py.)
UNCOMPILED = RunOptions(out_dir="run", checkpoint_every=1, mode="pynative", progress=False)


def poison(monkeypatch, updates):
    """Put infinity into one pixel of the third sample of some updates."""
    batch = MemoryFeed.batch

    def poisoned(self, update):
        images, labels = batch(self, update)
        if update + 1 in updates:
            images = images.copy()
            images[2, 0, 1, 1] = np.inf
        return images, labels

    monkeypatch.setattr(MemoryFeed, "batch", poisoned)


@pytest.mark.slow
def test_fp16_stops_after_too_many_skipped_updates(monkeypatch, raises_line):
    poison(monkeypatch, {2, 4, 5})
    row = "update 5: 2 updates in a row were skipped, in spite of loss scaling; loss or gradients"
    with raises_line(
        row, "last good checkpoint: run/checkpoints/step-00000004", kind=NotFiniteError
    ):
        train(
            TINY.changed(precision="fp16"),
            UNCOMPILED.changed(max_skips=2),
        )
    run = RunFolder(Path("run"))
    fields = ("scaler.scale", "scaler.skipped", "scaler.skipped_in_row")
    scalers = {
        u: tuple(load_checkpoint(run.checkpoint_path(u)).training[field] for field in fields)
        for u in run.updates()
    }
    assert scalers == {2: (32768, 1, 1), 3: (32768, 1, 0), 4: (16384, 2, 1)}


def test_weights_that_run_away_are_never_saved(raises_line):
    """Finite gradients and a huge decay times a huge learning rate: the weights themselves
    overflow.

    The next update may fail before the failed save is seen; both errors name the save.
    """
    wild = TINY.changed(learning_rate=3.4e38, weight_decay=1e3, clip_norm=0.0, schedule="constant")
    with raises_line(
        "/checkpoints/step-00000001 was not saved, because conv1.weight contains",
        kind=(CheckpointError, NotFiniteError),
    ):
        train(wild, UNCOMPILED)
    assert os.listdir("run/checkpoints") == []


def test_a_run_continues_after_a_non_finite_evaluation():
    """float16: after a huge update 1 all logits are infinite, and update 2 is skipped."""
    wild = TINY.changed(
        batch_size=1437,
        epochs=2,
        precision="fp16",
        learning_rate=1e6,
        weight_decay=0.0,
        clip_norm=0.0,
    )
    assert np.isnan(train(wild, UNCOMPILED).last["loss"])
    run = RunFolder(Path("run"))
    assert (run.updates(), run.newest().state["last"]["loss"]) == ([1, 2], None)  # JSON has no NaN
    shutil.rmtree(run.checkpoint_path(2))
    again = train(wild, UNCOMPILED)
    assert (again.updates, again.best, np.isnan(again.last["loss"])) == (2, None, True)


@pytest.mark.slow
def test_a_full_disk_is_named_and_loses_nothing(launcher):
    """RLIMIT_FSIZE: exit 1, one line, no half checkpoint; with room it goes on.

    tensorboardX, left alone, would wait for ever.
    """
    fills = {4_096: "events.out.tfevents", 100_000: "checkpoints/step-00000001"}
    for room, full in fills.items():
        limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (room, room))
        output = train_to_the_end(launcher, 1, preexec_fn=limit)
        assert output.splitlines()[-1] == (
            f"train: error: run/{full}: cannot be saved (File too large); raise the limit of a "
            "file's size (ulimit -f), and run the same command with --out-dir run to resume "
            "from the last checkpoint"
        )
        assert os.listdir("run/checkpoints") == []
    train_to_the_end(launcher, 0)


def train_to_the_end(launcher, code, **popen):
    process = launcher.train("--epochs", "1", "--out-dir", "run", **popen)
    output, _ = process.communicate(timeout=200)
    assert process.returncode == code, output
    return output
