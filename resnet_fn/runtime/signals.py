"""SIGTERM, SIGINT and SIGHUP as a request: end after this update or evaluation batch, with a checkpoint."""

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

import numpy as np

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def heeded() -> list[signal.Signals]:
    """`SIGNALS`, but for a SIGHUP that is ignored (nohup)."""
    return [number for number in SIGNALS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]


def in_main_thread() -> bool:
    """Whether this is the main thread; Python allows signal handlers nowhere else."""
    return threading.current_thread() is threading.main_thread()


class StoppedError(Exception):
    """Every rank leaves an evaluation between two batches, for the signal `number`."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class StopRequest:
    """From `install_handlers` to the end of this context, `SIGNALS` are noted; further ones change nothing.

    Before that there is nothing to lose, and a signal keeps its meaning: it ends this process at once. So it does
    throughout outside the main thread, where Python allows no handlers, and a SIGHUP that is ignored (nohup).

    While MindSpore compiles or runs a compiled function it has a SIGINT handler of its own, which sends SIGTERM to
    this process instead. A command that wants to tell them apart blocks SIGINT before NumPy and MindSpore start their
    threads (they inherit it; one that does not would take the signal); then a thread waits for it here.
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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._open = False
        if self._listener is not None and self._listener.ident is not None:
            signal.pthread_kill(self._listener.ident, signal.SIGINT)
            self._listener.join()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def install_handlers(self) -> None:
        """From now on there is something to lose. Further calls do nothing."""
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
        """float32 [3]: 1 for the signal that this process got. Summed over the ranks it travels with the step."""
        return self._asked.copy()


def agreed_signal(stop_flags: np.ndarray) -> int:
    """The signal number that all ranks stop for, from the summed `StopRequest.stop_flags`; 0: go on.

    Ranks may have got different signals; the first of `SIGNALS` counts, so that all leave with one exit code.
    """
    return next((int(number) for number, count in zip(SIGNALS, stop_flags, strict=True) if count > 0), 0)


def raise_if_stopped(number: int) -> None:
    """Raise `StoppedError` for a signal; do nothing for 0."""
    if number:
        raise StoppedError(number)
