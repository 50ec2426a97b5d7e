"""The lock of a folder, between real processes."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from resnet_fn.runtime.lock import FolderLock


def test_where_there_are_no_locks_a_run_goes_on_and_says_so(monkeypatch, capsys):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", refuse)
    with FolderLock() as lock:
        lock.take(Path("."))
    assert capsys.readouterr().err == "warning: .: no lock (No locks available); start no other run there\n"


def test_a_folder_that_takes_no_files_is_named():
    with FolderLock() as lock, pytest.raises(ValueError, match=r"^out_dir: none cannot be written \(No such file"):
        lock.take(Path("none"))
