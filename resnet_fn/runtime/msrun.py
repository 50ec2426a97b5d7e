"""This module starts workers with msrun and collects the exit codes of the workers."""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from resnet_fn.runtime import parent
from resnet_fn.runtime.port import port_error

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def claim_port(address: str, port: int, flag: str = "--master_port") -> int:
    """Return `port`, or a free port if `port` is 0.

    Raises ValueError if the port cannot be used at `address`. `flag` chooses another port.
    """
    try:
        family, _, _, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # a port in TIME_WAIT is free
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
            return int(probe.getsockname()[1])
    except OSError as error:
        raise port_error(address, port, error, flag) from None


def shell_code(status: int) -> int:
    """Return the exit code for a status from `os.waitpid`.

    A process that signal n killed has code 128 + n.
    """
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def describe_exit(code: int) -> str:
    """Describe an exit code of `shell_code`, for example "exit code 137 (SIGKILL)"."""
    with contextlib.suppress(ValueError):
        return f"exit code {code} ({signal.Signals(code - 128).name})"
    return f"exit code {code}"


class WorkerProcesses:
    """Starts and watches this machine's workers and, on machine 0, MindSpore's scheduler
    process.
    """

    def __init__(self) -> None:
        self._inherited = set(parent.children(os.getpid()))  # children started before the launcher
        self.running: dict[int, str] = {}  # process id → name: scheduler, worker_0, worker_1, …
        # name → exit code, see `shell_code`, in the order in which they ended
        self.ended: dict[str, int] = {}

    def start(
        self,
        flags: Sequence[object],
        ranks: range,
        command: Sequence[str],
        logs: Path,
        variables: Mapping[str, str],
    ) -> None:
        """Start `command` on `ranks` with msrun, which gets `flags`.

        `variables` are added to the environment.
        """
        become = ("python", Path(parent.__file__).absolute(), os.getpid(), *command)
        # -P: otherwise a file of the current folder, such as ast.py, would hide Python's own
        msrun = (sys.executable, "-P", "-m", "mindspore.parallel.cluster.run")
        command_line = [str(word) for word in (*msrun, *flags, "--log_dir", logs, *become)]
        # Without `--join True`, msrun ends when the workers run. This process then becomes the
        # parent of the workers.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
        with tempfile.TemporaryDirectory() as folder:
            # msrun looks for `python` on PATH, which may be missing or another one
            Path(folder, "python").symlink_to(sys.executable)
            path = os.pathsep.join(
                (folder, str(Path(sys.executable).parent), os.environ.get("PATH", ""))
            )
            # The workers get their own session, so that Ctrl-C reaches them only once, through
            # this process.
            done = subprocess.run(
                command_line,
                env={**os.environ, **variables, "PATH": path},
                capture_output=True,
                start_new_session=True,
            )
        # the scheduler and the workers come first; a worker may have left an orphan already
        started = self._children()[: 1 + len(ranks)]
        if done.returncode or len(started) < len(ranks):
            last_line = "".join(done.stderr.decode(errors="replace").splitlines()[-1:])
            raise ValueError(f"msrun ended with exit code {done.returncode}: {last_line}")
        names = ["scheduler", *(f"worker_{rank}" for rank in ranks)]
        self.running = dict(zip(started, names[-len(started) :], strict=True))

    def _children(self) -> list[int]:
        """Return the process ids of the children that msrun started."""
        below = [pid for pid in parent.children(os.getpid()) if pid not in self._inherited]
        # msrun started them in another session
        return [pid for pid in below if os.getsid(pid) != os.getsid(0)]

    def send(self, number: int) -> None:
        """Send a signal to each running worker. The scheduler does not get the signal."""
        for pid, name in self.running.items():
            if name != "scheduler":  # if the scheduler ended first, all workers would end
                os.kill(pid, number)

    def poll(self) -> None:
        """Move processes that have ended from `running` to `ended`."""
        with contextlib.suppress(ChildProcessError):  # no child is left
            while (end := os.waitpid(-1, os.WNOHANG))[0]:
                if name := self.running.pop(end[0], ""):  # other ids are orphans of a worker
                    self.ended[name] = shell_code(end[1])

    def kill(self) -> None:
        """Kill the processes that msrun started, and wait up to 5 s until they have ended."""
        deadline = time.monotonic() + 5
        while (left := self._children()) and time.monotonic() < deadline:
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
            self.poll()
