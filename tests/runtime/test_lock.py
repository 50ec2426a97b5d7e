"""One process at a time writes to a run folder; without locks, a line says so."""

import errno
import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from resnet_fn.runtime.lock import FolderLock, was_locked

HOLD = """
import os, pathlib, sys
from resnet_fn.runtime.lock import FolderLock
lock = FolderLock()
lock.take(pathlib.Path("."))
if os.fork():
    print("held", flush=True)
sys.stdin.read()
"""


def test_a_lock_ends_with_its_holder_despite_children():
    command = [sys.executable, "-c", HOLD]
    pipe = subprocess.PIPE
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


def test_a_run_without_locks_prints_a_line(monkeypatch, capsys):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", refuse)
    with FolderLock() as lock:
        lock.take(Path("."))
    assert (
        capsys.readouterr().err
        == "warning: . cannot be locked (No locks available); start no other run there\n"
    )


TAKE = """
import pathlib
from resnet_fn.runtime.lock import FolderLock
try:
    FolderLock().take(pathlib.Path("."))
    print("locked")
except ValueError as error:
    print(error)
"""


def in_another_process():
    command = [sys.executable, "-c", TAKE]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_lock_keeps_out_other_threads_and_lasts(raises_line):
    def take_in_a_thread() -> None:
        with (
            raises_line("out_dir: . is in use by process", "another thread; wait"),
            FolderLock() as other,
        ):
            other.take(Path("."))
        seen.append("refused")

    seen: list[str] = []
    with FolderLock() as lock:
        lock.take(Path("."))
        thread = threading.Thread(target=take_in_a_thread)
        thread.start()
        thread.join()
        assert seen == ["refused"]
        assert was_locked(Path("."))  # reads the file
        assert "is in use by process" in in_another_process()
    assert in_another_process() == "locked\n"
    with FolderLock() as lock:
        lock.take(Path("."))


def test_a_look_at_a_lock_releases_none(monkeypatch):
    """That another thread takes meanwhile."""
    with FolderLock() as lock:
        lock.take(Path("."))
    lock = FolderLock()
    read = Path.read_text
    thread = threading.Thread(target=lock.take, args=(Path("."),))

    def take_before_read(path, *arguments, **keywords):
        thread.start()
        thread.join(0.5)
        return read(path, *arguments, **keywords)

    monkeypatch.setattr(Path, "read_text", take_before_read)
    assert was_locked(Path("."))
    thread.join()
    with lock:
        assert "is in use by process" in in_another_process()


@pytest.mark.parametrize("has_run", [False, True])
@pytest.mark.parametrize("text", ["", "\0" * 9, "mine"])
def test_another_programs_lock_is_not_taken(text, has_run, raises_line, lock):
    Path("lock").write_text(text)
    if has_run and text != "mine":  # a loss of power can empty a run's
        assert lock.take(Path("."), has_run)
        return
    with raises_line("out_dir: lock was not written by a run; give another"):
        lock.take(Path("."), has_run)
    assert Path("lock").read_text() == text


def test_a_lock_of_another_user_is_named(raises_line, another_user):
    Path("lock").touch()
    Path("lock").chmod(0o444)
    Path().chmod(0o755)
    line = "out_dir: lock cannot be written (Permission den"
    with another_user(), FolderLock() as lock, raises_line(line):
        lock.take(Path("."))


@pytest.mark.parametrize("there", [False, True])
def test_a_full_disk_names_the_lock(there, raises_line, no_room):
    if there:
        with FolderLock() as lock:
            lock.take(Path("."))
    line = "out_dir: lock cannot be written (File too large)"
    with no_room(), FolderLock() as lock, raises_line(line):
        lock.take(Path("."))
    with FolderLock() as lock:
        lock.take(Path("."), has_run=there)
