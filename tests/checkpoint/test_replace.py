"""An older checkpoint of the same name is replaced without a moment without one."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.checkpoint.folder import load_checkpoint, write_checkpoint
from resnet_fn.checkpoint.replace import recover_interrupted_replace
from resnet_fn.checkpoint.run_folder import RunFolder

RUN = RunFolder(Path("run"))
REPLACED = "step-00000003.replaced-77-0123abcd"


def write(name, value):
    arrays = {"w": np.full(3, value, np.float32)}
    return write_checkpoint(RUN.checkpoints / name, arrays, {}, {"update": value})


def names():
    return sorted(path.name for path in RUN.checkpoints.iterdir())


def test_a_replacement_that_a_crash_interrupted_is_undone():
    write("step-00000002", 2)
    write(REPLACED, 3)
    recover_interrupted_replace(RUN.checkpoints)
    assert RUN.newest().weights["w"].tolist() == [3, 3, 3]
    assert names() == ["step-00000002", "step-00000003"]


def test_a_replaced_checkpoint_never_comes_back_after_pruning():
    """A crash after the new checkpoint had its name left the old one."""
    write("step-00000003", 30)
    write(REPLACED, 3)
    recover_interrupted_replace(RUN.checkpoints)
    assert load_checkpoint(RUN.checkpoint_path(3)).weights["w"].tolist() == [30, 30, 30]
    for update in (4, 5, 6):
        write(f"step-{update:08d}", update)
        RUN.prune(update, keep_last=2)
    recover_interrupted_replace(RUN.checkpoints)
    assert RUN.updates() == [5, 6]


def test_an_old_folder_that_stays_fails_no_save(monkeypatch):
    """As on a network disk, where another machine has a file of it open."""
    rename = os.rename

    def refuse(source, target):
        if ".replaced-" in str(source):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(source))
        rename(source, target)

    write("step-00000003", 3)
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", refuse)
        write("step-00000003", 30)
    assert len(names()) == 2
    recover_interrupted_replace(RUN.checkpoints)
    assert names() == ["step-00000003"]
    assert RUN.newest().weights["w"].tolist() == [30, 30, 30]


@pytest.mark.parametrize("remove", [False, True])
def test_the_target_of_a_linked_checkpoint_stays(remove):
    """A user moved a checkpoint to another disk."""
    moved = write("step-00000003", 3).rename("moved")
    RUN.checkpoint_path(3).symlink_to(moved.absolute())
    if remove:
        write("step-00000004", 4)
        RUN.prune(4, keep_last=1)
        assert names() == ["step-00000004"]
    else:
        write("step-00000003", 30)
        assert names() == ["step-00000003"]
        assert RUN.newest().weights["w"].tolist() == [30, 30, 30]
    assert load_checkpoint(moved).weights["w"].tolist() == [3, 3, 3]


def test_folders_of_other_names_are_left_alone():
    others = ["step-00000002.old", "step-3.old", "step-00000003.tmp-mine", "step-00000003.replaced"]
    write("step-00000003", 3)
    for name in others:
        write(name, 1)
    recover_interrupted_replace(RUN.checkpoints)
    RUN.prune(3, keep_last=2)
    assert names() == sorted([*others, "step-00000003"])
