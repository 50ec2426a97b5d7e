"""The check of a folder for runs, where the file system has no locks."""

import errno
import fcntl
import os

import pytest

from resnet_fn.doctor import storage

pytestmark = pytest.mark.usefixtures("device")


def test_a_file_system_without_locks_is_found(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", refuse)
    assert storage.rename(tmp_path) == (
        False,
        "a file was replaced: True, the folder was locked: False",
    )
