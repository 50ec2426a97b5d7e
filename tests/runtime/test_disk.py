"""A file is written whole or not at all."""

import errno
import os
from pathlib import Path

import pytest

from resnet_fn.runtime.disk import replace_file, saving, write_synced


def test_an_existing_file_is_not_overwritten():
    write_synced(Path("a"), b"1")
    with pytest.raises(FileExistsError):
        write_synced(Path("a"), b"2")
    assert Path("a").read_bytes() == b"1"


def test_a_replacement_is_there_when_it_is_whole():
    Path("net.ckpt").write_text("old")
    with replace_file(Path("net.ckpt")) as temporary:
        assert (temporary.parent, temporary.suffix, temporary.exists()) == (Path(), ".ckpt", False)
        temporary.write_text("new")
        assert Path("net.ckpt").read_text() == "old"
    assert Path("net.ckpt").read_text() == "new"
    assert os.listdir() == ["net.ckpt"]


def test_an_error_leaves_only_the_old_file():
    Path("a").write_text("old")
    with pytest.raises(KeyError), replace_file(Path("a")) as temporary:  # noqa: PT012
        temporary.write_text("half")
        raise KeyError
    assert (os.listdir(), Path("a").read_text()) == (["a"], "old")
    with pytest.raises(FileNotFoundError), replace_file(Path("no such folder/a")):
        raise AssertionError("nothing is computed for a place that cannot be written")


@pytest.mark.parametrize(
    ("number", "fix"),
    [
        (errno.ENOSPC, "make room on the disk"),
        (errno.EDQUOT, "make room in your quota"),
        (errno.EROFS, "make the disk writable"),
        (errno.EACCES, "get the permission to write"),
        (errno.EIO, "remove the cause"),
    ],
)
def test_a_failed_save_says_what_helps(number, fix, raises_line):
    words = f"run/a: cannot be saved ({os.strerror(number)})", f"; {fix}", "--out-dir run"
    with raises_line(*words, kind=OSError), saving(Path("run/a"), Path("run")):
        raise OSError(number, os.strerror(number))
