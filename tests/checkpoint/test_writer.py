"""The background writer: order, errors, and arrays that did not change."""

import os
import threading
import time
from concurrent.futures import wait
from pathlib import Path

import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.checkpoint.folder import load_checkpoint
from resnet_fn.checkpoint.writer import CheckpointWriter
from resnet_fn.update.optimizer import momentum_sgd
from resnet_fn.update.state import make_state

FOLDER = Path("step-00000003")
STATE = {"update": 3, "epoch": 0, "best": None, "last": None}


@pytest.fixture
def state(device):
    """A net of one parameter, `w` [2, 3], 0 to 5, and plain SGD."""
    net = nn.Cell()
    net.w = Parameter(Tensor(np.arange(6, dtype=np.float32).reshape(2, 3)), name="w")
    return make_state(net, momentum_sgd([(net.w, 0.0)], 0.9))


@pytest.fixture
def held_disk(monkeypatch):
    """A disk whose first sync waits until it is let go."""
    from resnet_fn.checkpoint import tensor_file

    gate, fsync = threading.Event(), os.fsync

    def wait_then_fsync(descriptor):
        assert gate.wait(60)
        fsync(descriptor)

    monkeypatch.setattr(tensor_file.os, "fsync", wait_then_fsync)
    yield gate
    gate.set()


def test_training_during_a_slow_save_changes_no_file(state, held_disk):
    pruned = []
    with CheckpointWriter(state) as writer:
        writer.save(FOLDER, STATE, lambda: pruned.append(FOLDER.exists()))
        ops.assign(state.weights[0], Tensor(np.full((2, 3), 7, np.float32)))  # the next update
        assert state.weights[0].asnumpy().sum() == 42
        assert writer.poll() == []
        assert not FOLDER.exists()
        held_disk.set()
    saved = load_checkpoint(FOLDER)
    assert saved.weights["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert list(saved.training) == [parameter.name for parameter in state.training]
    assert pruned == [True], "older checkpoints go only when this one is there"
    (event,) = writer.poll()
    assert (event["event"], event["update"]) == ("checkpoint", 3)
    assert 0 < event["stall_seconds"] < event["write_seconds"]


def test_a_second_save_waits_for_the_first(state, held_disk):
    threading.Timer(0.3, held_disk.set).start()
    with CheckpointWriter(state) as writer:
        writer.save(FOLDER, STATE, lambda: None)
        ops.assign(state.weights[0], Tensor(np.full((2, 3), 7, np.float32)))
        writer.save(FOLDER.with_name("step-00000004"), {**STATE, "update": 4}, lambda: None)
    assert load_checkpoint(FOLDER).weights["w"].sum() == 15
    assert load_checkpoint(FOLDER.with_name("step-00000004")).weights["w"].sum() == 42
    first, second = writer.poll()
    assert first["stall_seconds"] < 0.2 < second["stall_seconds"]


def inodes():
    return {path.name: path.stat().st_ino for path in FOLDER.glob("*.safetensors")}


def test_an_equal_second_save_writes_only_the_state(state, monkeypatch):
    """As after an evaluation. What an evaluation has moved, or a disk without links: all anew."""
    with CheckpointWriter(state) as writer:

        def saved(epoch):
            writer.save(FOLDER, {**STATE, "epoch": epoch}, lambda: None)
            writer.wait()
            assert load_checkpoint(FOLDER).state["epoch"] == epoch
            return inodes()

        first = saved(1)
        assert saved(2) == first
        ops.assign(state.weights[0], Tensor(np.full((2, 3), -0.0, np.float32)))
        assert not {*saved(3).values()} & {*first.values()}
        monkeypatch.setattr(os, "link", lambda *_: os.stat("not there"))
        saved(4)
    assert np.signbit(load_checkpoint(FOLDER).weights["w"]).all()


def test_a_wait_for_a_save_can_end_early(state, held_disk):
    with CheckpointWriter(state) as writer:
        writer.save(FOLDER, STATE, lambda: None)
        began = time.monotonic()
        writer.wait(0.05)
        assert 0.05 <= time.monotonic() - began < 5
        assert not FOLDER.exists()
        held_disk.set()


def test_an_error_is_raised_at_the_next_poll(state):
    Path("file").write_text("in the way")
    with CheckpointWriter(state) as writer:
        writer.save("file" / FOLDER, STATE, lambda: None)
        wait(writer._saves)
        with pytest.raises(
            OSError, match=r"cannot be saved \(Not a directory\); remove the cause.*--out-dir"
        ):
            writer.poll()
        assert writer.poll() == [], "once"
    with pytest.raises(OSError, match="cannot be saved"), CheckpointWriter(state) as writer:
        writer.save("file" / FOLDER, STATE, lambda: None)
    # but it does not hide the loop's own error
    with pytest.raises(KeyError), CheckpointWriter(state) as writer:  # noqa: PT012
        writer.save("file" / FOLDER, STATE, lambda: None)
        raise KeyError


def test_the_process_does_not_end_before_the_write(python):
    """`sys.exit` right after `save`, on a disk that takes half a second for each sync."""
    script = Path("script.py")
    script.write_text(
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from resnet_fn.checkpoint import tensor_file\n"
        "from resnet_fn.checkpoint.writer import CheckpointWriter\n"
        "from mindspore import nn\n"
        "from resnet_fn.update.optimizer import momentum_sgd\n"
        "from resnet_fn.update.state import make_state\n"
        "fsync = os.fsync\n"
        "tensor_file.os.fsync = lambda d: (time.sleep(0.5), fsync(d))\n"
        "with CheckpointWriter(make_state(nn.Dense(3, 1, 'ones'), momentum_sgd([]))) as writer:\n"
        f"    writer.save(Path({str(FOLDER)!r}), {STATE!r}, lambda: None)\n"
        "    sys.exit(7)\n"
    )
    python(script, code=7)
    assert load_checkpoint(FOLDER).weights["weight"].tolist() == [[1, 1, 1]]
