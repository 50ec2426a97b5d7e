"""SIGTERM, SIGINT and SIGHUP ask a run to save a checkpoint and end."""

import os
import signal
import threading
from types import FrameType
from typing import Any

import numpy as np

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def heeded() -> list[signal.Signals]:
    """Return `SIGNALS`.

    SIGHUP is left out if this process ignores SIGHUP, for example under nohup.
    """
    return [
        number
        for number in SIGNALS
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN
    ]


def in_main_thread() -> bool:
    """Return whether this is the main thread, the only thread that can set signal handlers."""
    return threading.current_thread() is threading.main_thread()


class StopRequest:
    """Records the first of `SIGNALS` that arrives between `install_handlers` and the end of the
    `with` block.

    Outside the main thread no signal is recorded, because Python allows no signal handlers there.
    """

    def __init__(self) -> None:
        self._asked = np.zeros(len(SIGNALS), np.float32)
        self._before: dict[signal.Signals, Any] = {}
        self._listener: threading.Thread | None = None
        self._open = False
        self._taken = False

    def __enter__(self) -> "StopRequest":
        self._open = True
        # While MindSpore compiles or runs a function, it turns a SIGINT into a SIGTERM. Commands
        # therefore block SIGINT before NumPy and MindSpore start threads, and a thread here waits
        # for SIGINT.
        if in_main_thread() and signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()):
            self._listener = threading.Thread(target=self._listen, name="sigint", daemon=True)
            self._listener.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._open = False
        if self._listener is not None and self._listener.ident is not None:
            signal.pthread_kill(self._listener.ident, signal.SIGINT)
            self._listener.join()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def install_handlers(self) -> None:
        """Start to record signals. Further calls do nothing."""
        if not self._taken:
            self._taken = True
            if in_main_thread():
                self._before = {number: signal.signal(number, self._note) for number in heeded()}

    def _listen(self) -> None:
        while True:
            number = signal.sigwait({signal.SIGINT})
            if not self._open:
                return
            if not self._taken:
                os.write(2, b"interrupted before the first update: there is nothing to save\n")
                # the main thread may be in MindSpore's compiler for minutes
                os._exit(128 + signal.SIGINT)
            self._note(number, None)

    def _note(self, number: int, _: FrameType | None) -> None:
        if not self._asked.any():
            self._asked[SIGNALS.index(signal.Signals(number))] = 1

    def stop_flags(self) -> np.ndarray:
        """Return float32 [3], a number for each of `SIGNALS`: 1 for the recorded signal, and 0 for
        the others.
        """
        return self._asked.copy()


def agreed_signal(stop_flags: np.ndarray) -> int:
    """Return the first of `SIGNALS` that any rank has recorded, or 0.

    `stop_flags` is the sum of all ranks' flags.
    """
    return next(
        (int(number) for number, count in zip(SIGNALS, stop_flags, strict=True) if count > 0), 0
    )
