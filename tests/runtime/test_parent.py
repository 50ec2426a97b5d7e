"""Processes that end with their parent; real ones, by their ids."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from resnet_fn.runtime import parent

WORKER = "import resnet_fn, sys, time; open(sys.argv[1], 'a').write('.'); time.sleep(60)"
NOBODY = 2**22  # the largest process id that Linux gives is one less


def run(code):
    return subprocess.run([sys.executable, "-c", code], timeout=60).returncode


def test_whose_parent_is_dead_already_ends_at_once():
    code = "from resnet_fn.runtime.parent import end_with; end_with({}); print('lives')"
    assert run(code.format("__import__('os').getppid()")) == 0
    assert run(code.format(NOBODY)) == -signal.SIGTERM


def test_a_command_waits_for_its_parent_or_never_starts():
    words = [sys.executable, parent.__file__, "", sys.executable, "-c", "import os; print(os.getppid())"]
    words[2] = str(os.getpid())
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"{os.getpid()}\n")
    words[2] = str(NOBODY)
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "")


def test_children_are_listed_the_oldest_first():
    before = parent.children(os.getpid())
    processes = [subprocess.Popen(["sleep", "60"]) for _ in range(3)]
    try:
        assert parent.children(os.getpid()) == [*before, *(process.pid for process in processes)]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def msrun_of_sleepers(started, *options):
    """Start an msrun of two workers; returns it, and its three processes' ids once all have imported the package."""
    here = Path(sys.executable).parent
    command = [here / "msrun", "--worker_num", "2", "--local_worker_num", "2", "--log_dir", "logs", *options]
    with open("msrun.txt", "wb") as output:
        msrun = subprocess.Popen(
            [*command, "python", "-c", WORKER, str(started)],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PATH": f"{here}:{os.environ['PATH']}"},
        )
    deadline = time.monotonic() + 60
    while (not started.exists() or started.stat().st_size < 3) and time.monotonic() < deadline:
        time.sleep(0.05)
    return msrun, sleepers(started)


def sleepers(started):
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if str(started).encode() in words and not any(word.endswith(b"/msrun") for word in words):
            found.append(int(path.parent.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_worker_ends_with_an_msrun_that_waits_for_it(number, tmp_path):
    msrun, pids = msrun_of_sleepers(tmp_path / "started", "--join", "True", "--tail_worker_log", "2")
    assert len(pids) == 3  # the scheduler too
    msrun.send_signal(number)
    assert msrun.wait() == -number
    deadline = time.monotonic() + 10
    while sleepers(tmp_path / "started") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not sleepers(tmp_path / "started")


def test_a_worker_outlives_an_msrun_that_leaves(tmp_path):
    """Without --join True msrun returns at once, which is no reason to end."""
    msrun, pids = msrun_of_sleepers(tmp_path / "started")
    assert msrun.wait(timeout=60) == 0
    time.sleep(1)
    left = sleepers(tmp_path / "started")
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert sorted(left) == sorted(pids)
    assert len(left) == 3
