"""The lock of a folder, between real processes."""

import errno
import fcntl
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from resnet_fn.runtime.lock import FolderLock

HOLD = """
import os, sys, pathlib
from resnet_fn.runtime.lock import FolderLock
with FolderLock() as lock:
    lock.take(pathlib.Path("."))
    if os.fork() == 0:
        sys.stdin.read()  # a child that outlives its parent does not hold it
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_second_process_is_told_who_is_the_first_until_that_is_killed():
    holder = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    with FolderLock() as lock:
        for _ in range(2):  # one that was refused has not broken it
            with pytest.raises(ValueError) as caught:
                lock.take(Path("."))
            who = rf"process {holder.pid} on {re.escape(platform.node())} since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d"
            assert re.fullmatch(rf"out_dir: \. is in use by {who}; wait, or give another --out-dir", str(caught.value))
        holder.kill()
        holder.wait()
        lock.take(Path("."))
        lock.take(Path("."))  # it has it
        assert Path("lock").read_text().startswith(f"process {os.getpid()} on ")
    holder.stdin.close()
    holder.stdout.close()


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
