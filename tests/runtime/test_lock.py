import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from resnet_fn.runtime.lock import FolderLock

HOLD = """
import os, pathlib, sys
from resnet_fn.runtime.lock import FolderLock
lock = FolderLock()
lock.take(pathlib.Path("."))
if os.fork():
    print("held", flush=True)
sys.stdin.read()
"""


def test_a_lock_names_its_holder_until_that_is_killed_though_its_child_lives_on():
    command, pipe = [sys.executable, "-c", HOLD], subprocess.PIPE
    with (
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as holder,
        FolderLock() as lock,
    ):
        assert holder.stdout.readline() == "held\n"
        who = rf"process {holder.pid} on \S+ since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d"
        with pytest.raises(
            ValueError, match=rf"^out_dir: \. is in use by {who}; wait, or give another --out-dir$"
        ):
            lock.take(Path("."))
        holder.kill()
        holder.wait()
        lock.take(Path("."))


def test_where_there_are_no_locks_a_run_goes_on_and_says_so(monkeypatch, capsys):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", refuse)
    with FolderLock() as lock:
        lock.take(Path("."))
    assert (
        capsys.readouterr().err
        == "warning: . cannot be locked (No locks available); start no other run there\n"
    )
