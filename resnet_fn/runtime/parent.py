"""These functions find the process that started this one, and end a worker when msrun or the
launcher dies.
"""

import contextlib
import ctypes
import os
import re
import signal
import sys
import time
from typing import Any, TypeVar

# in a worker's environment: the launcher's command, as a list in JSON
LAUNCHED_BY = "RESNET_FN_LAUNCHED_BY"
_PR_SET_PDEATHSIG = 1  # linux/prctl.h; it holds across exec
_started_by = os.getppid()
_Answer = TypeVar("_Answer")


def die_with_parent(parent: int, number: int = signal.SIGTERM) -> None:
    """Let the kernel send signal `number` to this process when its parent, process `parent`,
    dies.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # the parent has already died
        os.kill(os.getpid(), number)


def msrun_command(process: int | None = None) -> list[str]:
    """Return the command line of the parent of `process`, by default this process, if it is msrun
    with `--join True`, which waits for workers, else [].
    """
    if "MS_ROLE" not in os.environ:
        return []
    command = command_line(os.getppid() if process is None else parent_of(process))
    joins = re.search(r" --join[ =](True|1) ", " ".join(command))
    return command if joins else []


def starter_waits(process: int | None = None) -> bool:
    """Return whether the launcher, or msrun with `--join True`, waits for `process`, by default
    this process.

    If nobody waits, nobody ends a job's other workers when one has failed.
    """
    starter = os.getppid() if process is None else parent_of(process)
    launched = LAUNCHED_BY in os.environ and starter == _started_by
    return launched or bool(msrun_command(process))


def command_line(process: int) -> list[str]:
    """Return the command of a process as a list, or [] if the process has ended."""
    return ask_process(process, "cmdline", [])


def ask_process(process: int, question: str, otherwise: _Answer) -> _Answer:
    """Return what the method `question` of `psutil.Process` answers about a process, or `otherwise`
    if it has ended or is another user's.
    """
    import psutil

    with contextlib.suppress(OSError, psutil.Error):  # OSError: no descriptors are left
        answer: _Answer = getattr(psutil.Process(process), question)()
        return answer
    return otherwise


def parent_of(process: int) -> int:
    """Return the process id of the parent of `process`, or 0 if `process` has ended."""
    return ask_process(process, "ppid", 0)


def start_of(process: int) -> float:
    """Return when `process` started, in seconds, or 0 if it has ended."""
    return ask_process(process, "create_time", 0.0)


def children(parent: int) -> list[int]:
    """Return the process ids of the children of process `parent`, oldest first."""
    below: list[Any] = ask_process(parent, "children", [])
    return sorted((process.pid for process in below), key=start_of)  # those of one tick as they are


# python parent.py PID COMMAND…: run COMMAND, which gets SIGTERM when process PID dies
if __name__ == "__main__":
    launcher = int(sys.argv[1])
    while os.getppid() != launcher and os.path.exists(f"/proc/{launcher}"):
        time.sleep(0.01)
    die_with_parent(launcher)
    os.execvp(sys.argv[2], sys.argv[2:])
