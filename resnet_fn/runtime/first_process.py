"""Signals of process 1, for example of a container, which the kernel gives only signals that have a
handler.
"""

import contextlib
import os
import signal
from typing import NoReturn


def let_signals_end_process_1() -> None:
    """Set handlers with which signals end this process if it is process 1.

    Handlers of the caller's own stay.
    """
    if os.getpid() == 1:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            with contextlib.suppress(ValueError):  # not in the main thread
                if signal.getsignal(number) == signal.SIG_DFL:
                    signal.signal(number, exit_at_once)


def exit_at_once(number: int, _: object) -> NoReturn:
    """End the process, as a handler of signal `number`."""
    os._exit(128 + number)  # an exception here could crash a module that is being imported
