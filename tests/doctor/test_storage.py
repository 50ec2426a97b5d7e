import errno
import fcntl
import os
import shutil
from collections import namedtuple

import pytest

from resnet_fn.doctor import storage

pytestmark = pytest.mark.usefixtures("device")


def test_a_good_disk(tmp_path):
    assert storage.checkpoint(tmp_path) == (True, "read back bit for bit")
    assert storage.rename(tmp_path) == (True, "a file was replaced in one step, the folder locked")


def test_a_file_system_without_locks(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", refuse)
    assert storage.rename(tmp_path) == (False, "a file was replaced in one step, the folder not locked")


def test_a_full_disk(tmp_path, monkeypatch):
    usage = namedtuple("Usage", "total used free")(10**12, 10**12 - 10**9, 10**9)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    assert storage.free_space(tmp_path) == (
        False,
        "1.0 GB free; a run keeps up to 5 checkpoints, ResNet-50's have 0.2 GB each",
    )
