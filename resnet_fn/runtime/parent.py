"""This module ends a worker with a signal when msrun or the launcher dies."""

import contextlib
import ctypes
import os
import re
import signal
import sys
import time
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # linux/prctl.h; it holds across exec


def die_with_parent(parent: int, number: int = signal.SIGTERM) -> None:
    """Let the kernel send signal `number` to this process when its parent, process `parent`,
    dies.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # the parent has already died
        os.kill(os.getpid(), number)


def msrun_command() -> list[str]:
    """Return the parent's command line if the parent is msrun with `--join True`, which waits for
    workers, else [].
    """
    words: list[str] = []
    with contextlib.suppress(OSError):  # no /proc: not Linux
        words = os.fsdecode(Path(f"/proc/{os.getppid()}/cmdline").read_bytes()).split("\0")[:-1]
    joins = re.search(r" --join[ =](True|1) ", " ".join(words))
    return words if "MS_ROLE" in os.environ and joins else []


def children(parent: int) -> list[int]:
    """Return the process ids of the children of process `parent`, oldest first."""
    processes = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process ended
            # from the third field, see proc(5)
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[1]) == parent:
                processes.append((int(fields[19]), int(path.parent.name)))
    return [pid for _, pid in sorted(processes)]


# python parent.py PID COMMAND…: run COMMAND, which gets SIGTERM when process PID dies
if __name__ == "__main__":
    launcher = int(sys.argv[1])
    while os.getppid() != launcher and os.path.exists(f"/proc/{launcher}"):
        time.sleep(0.01)
    die_with_parent(launcher)
    os.execvp(sys.argv[2], sys.argv[2:])
