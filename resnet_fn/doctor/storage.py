"""These checks test the disk in an empty folder. Each check returns (ok, a line of text)."""

import shutil
from pathlib import Path

import numpy as np
from mindspore import Parameter, Tensor

from resnet_fn.checkpoint.folder import load_checkpoint, save_checkpoint
from resnet_fn.checkpoint.run_folder import check_rename
from resnet_fn.runtime.disk import replace_file
from resnet_fn.runtime.lock import FolderLock

_LEAST = 2.0  # GB, twice the size of five checkpoints of ResNet-50 with momentum


def checkpoint(folder: Path) -> tuple[bool, str]:
    """Check that a checkpoint is read back bit for bit."""
    values = np.array([1 / 3, -0.0, np.float32(1e-45), 65504.0], np.float32)
    weight = Parameter(Tensor(values), name="doctor.saved")
    saved = load_checkpoint(save_checkpoint(folder / "step-00000001", [weight], [], {"update": 1}))
    same = saved.weights["doctor.saved"].tobytes() == values.tobytes()
    return (
        same,
        "a checkpoint is read back bit for bit"
        if same
        else "a checkpoint is read back with other bits",
    )


def rename(folder: Path) -> tuple[bool, str]:
    """Check that a file can be replaced, a folder renamed, and the folder locked."""
    check_rename(folder)
    path = folder / "file"
    for text in ("old", "new"):
        with replace_file(path) as temporary:
            temporary.write_text(text)
    with FolderLock() as lock:
        locked = lock.take(folder)
    replaced = path.read_text() == "new" and not any(folder.glob(".tmp*"))
    return replaced and locked, f"a file was replaced: {replaced}, the folder was locked: {locked}"


def free_space(folder: Path) -> tuple[bool, str]:
    """Check that the disk has room for the checkpoints of a run."""
    free = shutil.disk_usage(folder).free / 1e9
    return (
        free >= _LEAST,
        f"{free:.1f} GB free; a run keeps up to 5 checkpoints (0.2 GB each for ResNet-50)",
    )
