"""A console that may go away while a run goes on."""

import os
import sys
from collections.abc import Callable
from typing import Any


class _Lossy:
    """A stream that takes everything: when it is full or its reader has gone, the rest goes nowhere."""

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
    """From now on this process goes on when stdout or stderr is closed, full, or nobody reads it any more."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < 3:
        pass  # one of the three was closed: what is opened next must not get its number, and its output
    os.close(descriptor)
    for name in ("stdout", "stderr"):
        setattr(sys, name, _Lossy(getattr(sys, name) or open(os.devnull, "w", encoding="utf-8")))  # noqa: SIM115
