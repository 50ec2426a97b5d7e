"""Errors that end a run: what is saved, and what the message contains.

(Several workers: faults/test_launcher.py.)
"""

import contextlib
import dataclasses
import resource
import shutil
import signal
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from resnet_fn import Recipe, RunOptions
from resnet_fn.checkpoint.folder import write_checkpoint
from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.data.feed import MemoryFeed
from resnet_fn.data.sources.bundled import load_digits
from resnet_fn.run.build import build_run
from resnet_fn.run.failures import NotFiniteError, stop_evaluation, suspect_samples
from resnet_fn.run.loop import train, train_epoch
from resnet_fn.runtime.signals import StopRequest
from resnet_fn.runtime.workers import Workers

pytestmark = pytest.mark.usefixtures("device")

# 5 updates an epoch
TINY = Recipe(model="resnet8", norm="none", image_size=8, batch_size=240, epochs=1)
UNCOMPILED = RunOptions(out_dir="run", mode="pynative", progress=False)


@pytest.mark.parametrize("shape", [(1, 2, 2), (4,), ()])
def test_samples_that_are_not_finite_are_named_alone(shape):
    images = np.zeros((3, *shape), np.float32)
    indices = np.array([7, 1, 4])
    assert suspect_samples(images, indices) == "7 1 4"
    images.reshape(3, -1)[1, -1] = np.inf
    assert suspect_samples(images, indices) == "1"


@pytest.fixture
def in_batch(monkeypatch):
    """in_batch(update, act): `act` changes the images of this update, or raises an error."""
    batch = MemoryFeed.batch

    def arrange(number, act):
        def changed(self, update):
            images, labels = batch(self, update)
            return (act(images.copy()) if update + 1 == number else images), labels

        monkeypatch.setattr(MemoryFeed, "batch", changed)

    return arrange


def test_a_data_threads_error_loses_no_update(in_batch, capsys, last_state):
    """Two in one run; afterwards it ends with the bits of an unbroken run."""
    errors = {3: MemoryError("no"), 4: RuntimeError("can't start new thread")}
    for update, error in errors.items():
        in_batch(update, Mock(side_effect=error))
        with pytest.raises(type(error)) as caught:
            train(TINY, UNCOMPILED)
        assert caught.value is error
        assert (
            f"update {update}: failed; the update was not applied; the checkpoint after update "
            f"{update - 1} is saved" in capsys.readouterr().out
        )
        assert max(RunFolder(Path("run")).updates()) == update - 1
    in_batch(0, Mock())
    assert train(TINY, UNCOMPILED).updates == 5
    train(TINY, UNCOMPILED.changed(out_dir="whole"))
    assert last_state("run")[1] == last_state("whole")[1]


def block_checkpoint(update):
    """Put a file where this checkpoint would be."""
    path = RunFolder(Path("run")).checkpoint_path(update)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")


def test_a_failed_save_hides_no_error(in_batch, capsys):
    def fail(images):
        block_checkpoint(3)
        raise MemoryError("no")

    in_batch(4, fail)
    with pytest.raises(MemoryError, match="no"):
        train(TINY, UNCOMPILED)
    assert "step-00000003 exists and is no checkpoint" in capsys.readouterr().out


def poison(images):
    images[1, 0, 2, 2] = np.nan
    return images


def test_an_earlier_failed_save_hides_no_nan(in_batch, raises_line):
    def block_and_poison(images):
        block_checkpoint(2)  # while update 2 is computed
        return poison(images)

    in_batch(3, block_and_poison)
    with raises_line(
        "update 3: loss or gradients are not finite",
        "also: folder: run/checkpoints/step-00000002 exists",
        kind=NotFiniteError,
    ):
        train(TINY, UNCOMPILED.changed(checkpoint_every=2))


def test_a_damaged_checkpoint_is_not_the_last_good(in_batch, raises_line):
    in_batch(4, Mock(side_effect=MemoryError))
    with pytest.raises(MemoryError):
        train(TINY, UNCOMPILED)
    folder = RunFolder(Path("run"))
    shutil.copytree(folder.checkpoint_path(3), folder.checkpoint_path(5))
    (folder.checkpoint_path(5) / "state.json").write_text("{}")
    in_batch(4, poison)
    with raises_line(
        "last good checkpoint: run/checkpoints/step-00000003; fix the data", kind=NotFiniteError
    ):
        train(TINY, UNCOMPILED)


def test_rank_0_saves_if_another_rank_is_lost(last_state):
    """In an evaluation: the others cannot be waited for."""
    with StopRequest() as request:
        run = build_run(TINY, UNCOMPILED, Workers(), RunFolder(Path("run")), request)
        with contextlib.closing(run.feed), contextlib.closing(run.prefetcher), run.writer:
            train_epoch(run)
            of_two = dataclasses.replace(run, workers=Workers(0, 2))
            with pytest.raises(RuntimeError, match="all-reduce"):
                stop_evaluation(of_two, RuntimeError("all-reduce"))
    assert last_state("run")[0]["update"] == 5


def test_nan_is_named_even_on_a_full_disk(in_batch, raises_line):
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)

    def poison_and_fill_the_disk(images):
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, most))
        return poison(images)

    in_batch(3, poison_and_fill_the_disk)
    sample = MemoryFeed(load_digits(), TINY).indices(2)[1]
    parts = (
        f"update 3: loss or gradients are not finite on rank 0, samples {sample}",
        "the batch cannot be kept: not-finite-00000003-rank-0.npz (File too large)",
        "the update was not applied; there is no checkpoint yet",
    )
    try:
        with raises_line(*parts, kind=NotFiniteError):
            train(TINY, UNCOMPILED)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    assert not list(Path("run").glob("not-finite*"))


DYING = """
import os, sys
import numpy as np
import resnet_fn
from mindspore import nn

class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(4, 2, "ones", "zeros")

    def construct(self, x):
        # the trial call before update 1 has 2 samples
        if not self.training and len(x) > 2 and os.path.exists("dies"):
            os.kill(os.getpid(), 9)  # as the kernel does if memory runs out
        return self.dense(x)

x = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32)
y = (x[:, 0] > 0).astype(np.int32)
resnet_fn.fit(
    Net(), (x, y), (x, y), epochs=2, batch_size=8, learning_rate=0.1, mode="pynative",
    progress=False, out_dir=sys.argv[1], eval_batch_size=int(sys.argv[2]),
)
"""


def test_a_kill_in_an_evaluation_costs_no_epoch(python, last_state, events):
    """In the first one and in the second; a smaller block is a way on, and named."""
    Path("dies").touch()
    python("-c", DYING, "run", 64, code=-signal.SIGKILL)
    assert last_state("run")[0]["update"] == 8
    assert last_state("run")[0]["last"] is None
    Path("dies").unlink()
    output = python("-c", DYING, "run", 16).stdout
    assert "the evaluation after update 8 comes first" in output
    assert "give eval_batch_size=4" in output
    assert "resuming with 16 samples at a time in evaluation instead of 64" in output
    python("-c", DYING, "whole", 16)
    assert last_state("run")[1] == last_state("whole")[1]
    assert events("run", "eval") == events("whole", "eval")


def test_an_evaluation_that_is_repeated_is_logged_once(events):
    """A process died after it had logged the evaluation, and before it had saved it."""
    result = train(TINY, UNCOMPILED)
    logged = events("run", "eval")
    saved = RunFolder(result.run).newest()
    state = {**saved.state, "last": None, "best": None}
    write_checkpoint(saved.path, saved.weights, saved.training, state)
    assert train(TINY, UNCOMPILED).best == result.best
    assert events("run", "eval") == logged
