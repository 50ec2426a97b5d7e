"""These functions format text for the terminal, let a process outlive the terminal, and return the
typed command.
"""

import json
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from resnet_fn.config.printing import printable
from resnet_fn.runtime.parent import LAUNCHED_BY, msrun_command, starter_waits


class _Lossy:
    """Wraps an output stream.

    If a write fails, no OSError is raised, and the descriptor then leads to /dev/null.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> None:
        self._try(self._stream.write, text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def _try(self, call: Callable[..., object], *arguments: str) -> None:
        try:
            call(*arguments)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


def outlive_console() -> None:
    """Let this process continue when stdout or stderr is closed or can no longer be written."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < 3:
        # if stdin, stdout or stderr is closed, the next opened file would get its number and its
        # output
        pass
    os.close(descriptor)
    for name in ("stdout", "stderr"):
        setattr(sys, name, _Lossy(getattr(sys, name) or open(os.devnull, "w", encoding="utf-8")))  # noqa: SIM115


def wrapped(text: str, indent: int) -> list[str]:
    """Return the lines of `text`, wrapped to the terminal's width, with later lines indented.

    Without a terminal, this is one line.
    """
    text = printable(text)
    if not text or not sys.stdout.isatty():
        return [text]
    width = shutil.get_terminal_size().columns
    later = " " * indent
    return textwrap.wrap(
        text, width, subsequent_indent=later, break_long_words=False, break_on_hyphens=False
    )


def aligned(rows: Sequence[Sequence[str]], gap: str = "  ") -> list[str]:
    """Return the lines of a table whose first column is aligned left and whose other columns are
    aligned right.
    """
    rows = [list(map(printable, row)) for row in rows]
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    return [gap.join([row[0].ljust(first), *map(str.rjust, row[1:], others)]) for row in rows]


def installed_program() -> str:
    """Return the name or path of the installed command `resnet_fn` if it started this process, else
    "".
    """
    path = sys.argv[0]
    if Path(path).name != "resnet_fn":
        return ""
    return "resnet_fn" if shutil.which("resnet_fn") == path else path


def typed_command() -> list[str]:
    """Return the words of the typed command.

    In a worker, this is the msrun or `resnet_fn.launch` command.
    """
    if "MS_ROLE" not in os.environ:  # msrun did not start this process
        program = installed_program()
        return [program, *sys.argv[1:]] if program else sys.orig_argv
    if LAUNCHED_BY in os.environ:
        return list(json.loads(os.environ[LAUNCHED_BY]))
    command = msrun_command()
    count = os.environ.get("MS_WORKER_NUM", "1")
    names = [Path(argument).name for argument in command]
    start = names.index("msrun") + 1 if "msrun" in names else 0  # after Python's arguments
    flags = ["--worker_num", count, "--local_worker_num", count, "--join", "True"]
    return ["msrun", *(command[start:] if start else [*flags, *sys.orig_argv])]


def background_note() -> str:
    """Describe how to follow and end a run that msrun has left in the background.

    Returns "" if msrun or the launcher waits for this run.
    """
    # msrun sets MS_TOPO_TIMEOUT; a pod of Kubernetes may have MS_ROLE without msrun
    if "MS_TOPO_TIMEOUT" not in os.environ or LAUNCHED_BY in os.environ or starter_waits():
        return ""
    log = shlex.quote(os.readlink("/proc/self/fd/1"))
    return (
        f"msrun has returned and this run goes on; tail -f {log} shows it, kill {os.getpid()} ends "
        "it with a checkpoint; with --join True, msrun waits"
    )
