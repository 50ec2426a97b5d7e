"""Files that are whole or not there: what replaces a file is written beside it, and an error leaves the old one."""

import math
import os
import stat
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.runtime.disk import finite_or_null, replace_file, sha256, sha256_of_file, write_synced

# FIPS 180-2, of "abc" and of a million times "a"
ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
MILLION = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"


def test_hashes_are_the_standards():
    Path("a").write_bytes(b"a" * 1_000_000)
    assert (sha256(b"abc"), sha256_of_file(Path("a"))) == (ABC, MILLION)


def test_a_file_that_is_there_is_not_written_over():
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


def test_an_error_leaves_the_old_file_and_nothing_else():
    Path("a").write_text("old")
    with pytest.raises(KeyError), replace_file(Path("a")) as temporary:  # noqa: PT012
        temporary.write_text("half")
        raise KeyError
    assert (os.listdir(), Path("a").read_text()) == (["a"], "old")
    with pytest.raises(FileNotFoundError), replace_file(Path("no such folder/a")):
        raise AssertionError("nothing is computed for a place that cannot be written")


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_the_umask_decides_who_may_read(umask, mode):
    before = os.umask(umask)
    try:
        with replace_file(Path("a")) as temporary:
            temporary.write_text("written by whoever")
            temporary.chmod(0o400)
    finally:
        os.umask(before)
    assert stat.S_IMODE(Path("a").stat().st_mode) == mode


def test_what_is_not_finite_is_null_at_any_depth():
    value = {"a": math.nan, "b": [1.5, -math.inf, {"c": (math.inf, 2)}], "d": np.float64("nan"), "e": 2**70}
    expected = {"a": None, "b": [1.5, None, {"c": [None, 2]}], "d": None, "e": 2**70}
    assert finite_or_null(value) == expected
