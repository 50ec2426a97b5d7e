"""A worker ends with the process that started it, and only then."""

import os
import signal
import sys
import time

from resnet_fn.runtime import parent

WORKER = "import resnet_fn, sys, time; open(sys.argv[1], 'a').write('.'); time.sleep(60)"
NOBODY = 2**22  # the largest process id that Linux gives is one less


def test_a_command_starts_only_if_its_parent_lives(python):
    words = [sys.executable, "-c", "import os; print(os.getppid())"]
    assert python(parent.__file__, os.getpid(), *words).stdout == f"{os.getpid()}\n"
    assert python(parent.__file__, NOBODY, *words, code=-signal.SIGTERM).stdout == ""


def test_a_worker_outlives_an_msrun_that_leaves(tmp_path, start_msrun, processes, wait_until):
    """Without --join True msrun returns at once, which is no reason to end."""
    started = tmp_path / "started"

    def sleepers():
        return [pid for pid, line in processes(started).items() if "/msrun " not in line]

    msrun = start_msrun(2, "python", "-c", WORKER, str(started))
    # all have imported the package
    wait_until(lambda: started.exists() and started.stat().st_size >= 3)
    pids = sleepers()
    assert msrun.wait(timeout=60) == 0
    time.sleep(1)
    left = sleepers()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert sorted(left) == sorted(pids)
    assert len(left) == 3
