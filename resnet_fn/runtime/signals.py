"""SIGTERM, SIGINT and SIGHUP ask a run to end after this update or evaluation batch, with a checkpoint."""

import os
import signal
import threading
from types import FrameType
from typing import Any

import numpy as np

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def heeded() -> list[signal.Signals]:
    """Return `SIGNALS`, without SIGHUP if this process ignores it (nohup)."""
    return [number for number in SIGNALS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]


def in_main_thread() -> bool:
    """Return whether this is the main thread, the only one in which Python allows signal handlers."""
    return threading.current_thread() is threading.main_thread()


class StopRequest:
    """Records the first of `SIGNALS` that arrives between `install_handlers` and the end of this context.

    Before `install_handlers` there is nothing to save, and a signal ends the process at once; outside the main thread,
    where Python allows no handlers, it always does. A SIGHUP that is ignored (nohup) stays ignored.

    While MindSpore compiles or runs a function, its own handler turns a SIGINT into a SIGTERM. To distinguish the two,
    a command blocks SIGINT before NumPy and MindSpore start threads, which inherit the mask; a thread here waits.
    """

    def __init__(self) -> None:
        self._asked = np.zeros(len(SIGNALS), np.float32)
        self._before: dict[signal.Signals, Any] = {}
        self._listener: threading.Thread | None = None
        self._open = False
        self._taken = False

    def __enter__(self) -> "StopRequest":
        self._open = True
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
                os._exit(128 + signal.SIGINT)  # the main thread may be in MindSpore's compiler for minutes
            self._note(number, None)

    def _note(self, number: int, _: FrameType | None) -> None:
        if not self._asked.any():
            self._asked[SIGNALS.index(signal.Signals(number))] = 1

    def stop_flags(self) -> np.ndarray:
        """Return float32 [3], one number for each of `SIGNALS`: 1 for the recorded one; the ranks sum these arrays."""
        return self._asked.copy()


def agreed_signal(stop_flags: np.ndarray) -> int:
    """Return the signal for which all ranks stop, from the sum of their `stop_flags`; 0 for none."""
    return next((int(number) for number, count in zip(SIGNALS, stop_flags, strict=True) if count > 0), 0)
