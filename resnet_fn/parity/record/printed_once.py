"""Print a line of the user's code once, although recording calls that code many times."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, TextIO


class _Once:
    """Writes to a stream each line that it has not written before."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._written = set[str]()
        self._line = ""

    def write(self, text: str) -> int:
        """Write the lines that `text` completes, if they are new."""
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            if line not in self._written:
                self._written.add(line)
                self._stream.write(f"{line}\n")
        return len(text)

    def flush(self) -> None:
        """Write the line that has no end yet, such as the prompt of a debugger."""
        self._stream.write(self._line)
        self._line = ""
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def lines_printed_once() -> Iterator[None]:
    """Print each line once inside a `with` block.

    What compiled code of MindSpore prints does not pass through here.
    """
    once = _Once(sys.stdout)
    with contextlib.redirect_stdout(once):
        yield
    once.flush()
