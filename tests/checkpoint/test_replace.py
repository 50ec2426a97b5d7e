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


@pytest.mark.parametrize("name", [REPLACED, "step-00000003.old"])
def test_a_replacement_that_a_crash_interrupted_is_undone(name):
    write("step-00000002", 2)
    write(name, 3)
    recover_interrupted_replace(RUN.checkpoints)
    assert RUN.newest().weights["w"].tolist() == [3, 3, 3]
    assert names() == ["step-00000002", "step-00000003"]


@pytest.mark.parametrize("name", [REPLACED, "step-00000003.old"])
def test_a_replaced_checkpoint_never_comes_back_after_pruning(name):
    """A crash after the new checkpoint had its name left the old one."""
    write("step-00000003", 30)
    write(name, 3)
    recover_interrupted_replace(RUN.checkpoints)
    assert load_checkpoint(RUN.checkpoint_path(3)).weights["w"].tolist() == [30, 30, 30]
    for update in (4, 5, 6):
        write(f"step-{update:08d}", update)
        RUN.prune(update, keep_last=2)
    recover_interrupted_replace(RUN.checkpoints)
    assert RUN.updates() == [5, 6]


def test_folders_of_other_names_are_left_alone():
    others = ["step-00000002.old", "step-3.old", "step-00000003.tmp-mine", "step-00000003.replaced"]
    write("step-00000003", 3)
    for name in others:
        write(name, 1)
    recover_interrupted_replace(RUN.checkpoints)
    RUN.prune(3, keep_last=2)
    assert names() == sorted([*others, "step-00000003"])
