"""Some signals ask a run to save a checkpoint and end."""

import contextlib
import os
import signal
import threading
from collections.abc import Container
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from resnet_fn.runtime.first_process import exit_at_once

# Slurm and SGE can send SIGUSR1 or SIGUSR2 some time before they kill a job.
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def heeded() -> list[signal.Signals]:
    """Return the signals of `SIGNALS` that this process may handle.

    SIGHUP is left out if this process ignores it, for example under nohup. SIGUSR1 and SIGUSR2 are
    left out if the process ignores them or has handlers of its own, in Python or in C, as
    faulthandler.register sets them.
    """
    return [number for number in SIGNALS if _is_free(number)]


def _is_free(number: signal.Signals) -> bool:
    handler = signal.getsignal(number)
    if number in (signal.SIGUSR1, signal.SIGUSR2):
        return handler == exit_at_once or (handler == signal.SIG_DFL and not _is_caught(number))
    return number != signal.SIGHUP or handler != signal.SIG_IGN


def _is_caught(number: signal.Signals) -> bool:
    """Return whether this process has a handler of a signal, which `signal.getsignal` reports only
    if Python set it.
    """
    with contextlib.suppress(OSError):  # no /proc: not Linux
        status = Path("/proc/self/status").read_text(errors="replace")
        fields = dict(line.split(":", 1) for line in status.splitlines())
        return bool(int(fields["SigCgt"], 16) >> (number - 1) & 1)  # see proc(5)
    return False


def in_main_thread() -> bool:
    """Return whether this is the main thread, the only thread that can set signal handlers."""
    return threading.current_thread() is threading.main_thread()


class StopRequest:
    """Records the first of `SIGNALS` that arrives between `install_handlers` and the end of the
    `with` block.

    Before `install_handlers`, a signal ends the process. Outside the main thread no signal is
    recorded, because Python allows no signal handlers there.
    """

    def __init__(self) -> None:
        self._asked = np.zeros(len(SIGNALS), np.float32)
        self._before: dict[signal.Signals, Any] = {}
        self._listener: threading.Thread | None = None
        self._watch: _Watch | None = None
        self._open = False
        self._taken = False

    def __enter__(self) -> "StopRequest":
        self._open = True
        if not in_main_thread():
            return self
        # While MindSpore compiles or runs a function, it turns a SIGINT into a SIGTERM. Commands
        # therefore block SIGINT before NumPy and MindSpore start threads, and a thread here waits
        # for SIGINT.
        if signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()):
            self._listener = threading.Thread(target=self._listen, name="sigint", daemon=True)
            self._listener.start()
        # The kernel gives process 1, for example of a container, only signals that have a handler.
        if os.getpid() == 1:
            self._set_handlers()
            self._watch = _Watch(self._before)
        return self

    def __exit__(self, *_: object) -> None:
        self._open = False
        self._end_watch()
        if self._listener is not None and self._listener.ident is not None:
            signal.pthread_kill(self._listener.ident, signal.SIGINT)
            self._listener.join()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def install_handlers(self) -> None:
        """Start to record signals. Further calls do nothing."""
        if not self._taken:
            self._taken = True
            self._end_watch()
            if in_main_thread() and not self._before:
                self._set_handlers()

    def _set_handlers(self) -> None:
        self._before = {number: signal.signal(number, self._note) for number in heeded()}

    def _end_watch(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _listen(self) -> None:
        while True:
            number = signal.sigwait({signal.SIGINT})
            if not self._open:
                return
            self._note(number, None)

    def _note(self, number: int, _: FrameType | None) -> None:
        if not self._taken:
            _end(number)
        if not self._asked.any():
            self._asked[SIGNALS.index(signal.Signals(number))] = 1

    def stop_flags(self) -> np.ndarray:
        """Return a number for each of `SIGNALS`, float32: 1 for the recorded signal, and 0 for the
        others.
        """
        return self._asked.copy()


def _end(number: int) -> NoReturn:
    """End the process at once. The main thread may be in MindSpore's compiler for minutes."""
    os.write(2, b"interrupted before the first update: there is nothing to save\n")
    os._exit(128 + number)


class _Watch:
    """A thread that ends the process when one of `numbers`, which have handlers, arrives.

    Python runs a handler in the main thread alone, which may be in MindSpore's compiler.
    """

    def __init__(self, numbers: Container[int]) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._thread = threading.Thread(
            target=self._wait, args=(numbers,), name="signals", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        os.close(self._write)
        self._thread.join()
        os.close(self._read)

    def _wait(self, numbers: Container[int]) -> None:
        while received := os.read(self._read, 1):
            if received[0] in numbers:
                _end(received[0])


def agreed_signal(stop_flags: np.ndarray) -> int:
    """Return the first of `SIGNALS` that any worker has recorded, or 0.

    `stop_flags` is the sum of all workers' flags.
    """
    return next(
        (int(number) for number, count in zip(SIGNALS, stop_flags, strict=True) if count > 0), 0
    )
