"""These functions find out which process uses a TCP port of this machine."""

import contextlib
import errno
import shlex

from resnet_fn.config.printing import printable
from resnet_fn.runtime.job import environment_of, workers_of
from resnet_fn.runtime.parent import command_line, parent_of

_SHOWN = 60  # characters of a command in messages


def _processes(port: int, status: str) -> list[int]:
    """Return the processes that have a TCP socket of this status, such as "LISTEN", at `port` of
    this machine. Another user's process is 0.
    """
    import psutil

    # no /proc: not Linux; RuntimeError: a line there that psutil cannot read
    with contextlib.suppress(OSError, RuntimeError, psutil.Error):
        return [
            connection.pid or 0
            for connection in psutil.net_connections("tcp")
            if connection.status == status and connection.laddr.port == port
        ]
    return []


def has_connections(port: int) -> bool:
    """Return whether a process is connected to `port` of this machine."""
    return bool(_processes(port, "ESTABLISHED"))


def port_error(address: str, port: int, error: OSError, flag: str) -> ValueError:
    """Return the error for a port that cannot be used at `address`.

    If another process uses the port, the error names the process and the command that ends it.
    `flag` chooses another port.
    """
    # If a job fails, msrun shows the scheduler's lines that contain the word Error.
    cause = f"{type(error).__name__}: {error.strerror}"
    fix = f"give another {flag}"
    if error.errno == errno.EADDRINUSE and (listeners := _processes(port, "LISTEN")):
        pid = max(listeners)
        cause = f"{cause} by {_describe(pid)}"
        fix = f"{fix}, or end it: kill {_process_to_end(pid)}" if pid else fix
    return ValueError(f"master port {port} at {address} cannot be used ({cause}); {fix}")


def _describe(pid: int) -> str:
    if not pid:
        return "another user's process"
    what = "the scheduler of another job, " * (environment_of(pid).get("MS_ROLE") == "MS_SCHED")
    command = shlex.join(command_line(pid))
    shown = command if len(command) <= _SHOWN else f"{command[:_SHOWN]}…"
    return f"{what}process {pid}, {printable(shown)}"


def _process_to_end(pid: int) -> int:
    """Return the process to which a user sends SIGTERM, to end what process `pid` belongs to.

    If `pid` is the scheduler of a job with workers, this is a worker: then all workers save and
    end.
    """
    if environment_of(pid).get("MS_ROLE") != "MS_SCHED":
        return pid
    starter = parent_of(pid)  # a scheduler may run in a child process, which ignores SIGTERM
    scheduler = starter if command_line(starter) == command_line(pid) else pid
    return min((worker.pid for worker in workers_of(scheduler)), default=scheduler)
