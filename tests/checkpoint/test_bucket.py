"""A mounted bucket refuses to rename a folder, to sync a folder, or to change a file's mode."""

import errno
import os
import stat
from pathlib import Path

import pytest

from resnet_fn.checkpoint.folder import load_checkpoint, save_checkpoint
from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.runtime.disk import file_system, replace_file


def refusing(call, number, is_refused):
    def refuse(target, *arguments, **keywords):
        if is_refused(target):
            raise OSError(number, os.strerror(number), str(target))
        return call(target, *arguments, **keywords)

    return refuse


def is_open_folder(descriptor):
    return stat.S_ISDIR(os.fstat(descriptor).st_mode)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EOPNOTSUPP, errno.EPERM])
def test_a_refused_rename_is_named_before_training(monkeypatch, lock, raises_line, number):
    monkeypatch.setattr(os, "rename", refusing(os.rename, number, os.path.isdir))
    fault = "out_dir: bucket/checkpoints", file_system(Path()), os.strerror(number)
    with raises_line(*fault, "give an --out-dir on"):
        RunFolder(Path("bucket")).create(lock)
    assert os.listdir("bucket/checkpoints") == []


@pytest.mark.parametrize("call", ["mkdir", "rename"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_no_fault_of_renaming(monkeypatch, lock, raises_line, number, call):
    refused = refusing(getattr(os, call), number, lambda path: "tmp-" in str(path))
    monkeypatch.setattr(os, call, refused)
    with raises_line("out_dir: run cannot be written", os.strerror(number), "give another path"):
        RunFolder(Path("run")).create(lock)


def test_the_check_of_folder_renames_leaves_no_files(lock):
    for _ in range(2):
        RunFolder(Path("run")).create(lock)
        assert os.listdir("run/checkpoints") == []


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSYS, errno.EBADF])
def test_folders_that_cannot_sync_are_one_warning(monkeypatch, capsys, number):
    monkeypatch.setattr(os, "fsync", refusing(os.fsync, number, is_open_folder))
    for update in (1, 2):
        path = Path(f"run/checkpoints/step-{update:08d}")
        save_checkpoint(path, [], [], {"update": update})
        assert load_checkpoint(path).state == {"update": update}
    (line,) = capsys.readouterr().err.splitlines()
    reason = f"cannot sync folders ({os.strerror(number)})"
    assert line.startswith(f"warning: {file_system(Path())} {reason}")


def test_a_sync_that_loses_data_is_an_error(monkeypatch):
    fsync = os.fsync
    faults = (errno.EINVAL, lambda file: not is_open_folder(file)), (errno.EIO, is_open_folder)
    for number, is_refused in faults:
        monkeypatch.setattr(os, "fsync", refusing(fsync, number, is_refused))
        with pytest.raises(OSError, match=os.strerror(number)):
            save_checkpoint(Path("run/checkpoints/step-00000001"), [], [], {"update": 1})
        assert os.listdir("run/checkpoints") == []


def test_a_mode_that_cannot_change_is_a_warning(monkeypatch, capsys):
    monkeypatch.setattr(os, "chmod", refusing(os.chmod, errno.EPERM, lambda path: True))
    for mode in (None, 0o400):
        with replace_file(Path("net.onnx")) as file:
            file.touch(mode=mode or 0o666)
    assert stat.S_IMODE(os.stat("net.onnx").st_mode) == 0o400
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot change modes (Operation not permitted)" in line
