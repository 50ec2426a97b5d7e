"""Workers save and end when the process that started them dies: msrun, or the launcher.

python parent.py PID COMMAND…    wait until PID is this process's parent, then become COMMAND, which ends with PID
"""

import contextlib
import ctypes
import os
import re
import signal
import sys
import time
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # linux/prctl.h; it holds across exec


def end_with(parent: int, number: int = signal.SIGTERM) -> None:
    """Have the kernel send this process a signal when its parent dies; now, if `parent` is no longer its parent."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def waiting_msrun() -> int:
    """The id of the msrun process that started this one and waits for it (`--join True`); 0 if there is none."""
    parent, command = os.getppid(), b""
    with contextlib.suppress(OSError):  # no /proc: not Linux
        command = Path(f"/proc/{parent}/cmdline").read_bytes()
    return parent if "MS_ROLE" in os.environ and re.search(rb"\0--join[\0=](True|1)\0", command) else 0


def children(parent: int) -> list[int]:
    """The ids of a process's children, the oldest first."""
    processes = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has gone meanwhile
            fields = path.read_text(errors="replace").rpartition(")")[2].split()  # from the third, see proc(5)
            if int(fields[1]) == parent:
                processes.append((int(fields[19]), int(path.parent.name)))
    return [pid for _, pid in sorted(processes)]


if __name__ == "__main__":
    launcher = int(sys.argv[1])
    while os.getppid() != launcher and os.path.exists(f"/proc/{launcher}"):
        time.sleep(0.01)
    end_with(launcher)
    os.execvp(sys.argv[2], sys.argv[2:])
