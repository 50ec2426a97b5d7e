"""These functions find out which process uses a TCP port of this machine."""

import contextlib
import errno
import os
import pwd
import shlex
from pathlib import Path
from typing import NamedTuple

from resnet_fn.config.printing import printable
from resnet_fn.runtime.job import environment_of, workers_of
from resnet_fn.runtime.parent import command_line, parent_of

_ESTABLISHED, _LISTEN = "01", "0A"  # states in /proc/net/tcp, see the kernel's tcp_states.h
_SHOWN = 60  # characters of a command in messages


class _Socket(NamedTuple):
    """A socket in /proc/net/tcp."""

    state: str
    user: int
    inode: str


def _sockets(port: int) -> list[_Socket]:
    """Return the TCP sockets of this network namespace whose local port is `port`."""
    sockets = []
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):  # no /proc, or no IPv6
            for line in Path("/proc/net", table).read_text().splitlines()[1:]:
                fields = line.split()  # see proc(5)
                if int(fields[1].rpartition(":")[2], 16) == port:
                    sockets.append(_Socket(fields[3], int(fields[7]), fields[9]))
    return sockets


def has_connections(port: int) -> bool:
    """Return whether a process is connected to `port` of this machine."""
    return any(connection.state == _ESTABLISHED for connection in _sockets(port))


def port_error(address: str, port: int, error: OSError, flag: str) -> ValueError:
    """Return the error for a port that cannot be used at `address`.

    If another process uses the port, the error names the process and the command that ends it.
    `flag` chooses another port.
    """
    # If a job fails, msrun shows the scheduler's lines that contain the word Error.
    cause = f"{type(error).__name__}: {error.strerror}"
    fix = f"give another {flag}"
    if error.errno == errno.EADDRINUSE and (listener := _listener(port)):
        pid, user = listener
        cause = f"{cause} by {_describe(pid, user)}"
        fix = f"{fix}, or end it: kill {_process_to_end(pid)}" if pid else fix
    return ValueError(f"master port {port} at {address} cannot be used ({cause}); {fix}")


def _listener(port: int) -> tuple[int, int] | None:
    """Return the process that listens at `port`, and its user, or None if nobody listens.

    The process is 0 if it is another user's.
    """
    listening = [socket for socket in _sockets(port) if socket.state == _LISTEN]
    if not listening:
        return None
    names = {f"socket:[{socket.inode}]" for socket in listening}
    for path in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # it was closed
            if os.readlink(path) in names:
                return int(path.parts[2]), listening[0].user
    return 0, listening[0].user


def _describe(pid: int, user: int) -> str:
    if not pid:
        name = str(user)
        with contextlib.suppress(KeyError):  # a container may not list the user
            name = pwd.getpwuid(user).pw_name
        return f"a process of user {name}"
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
