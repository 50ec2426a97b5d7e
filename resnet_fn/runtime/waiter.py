"""How the loop waits for the device."""

import time
from collections.abc import Sequence
from typing import Any


class ResultWaiter:
    """Fetches a step's results without burning a core while the device still computes.

    MindSpore's Python thread spins while it waits for a jit result and takes a core from the kernels. So: sleep for
    the predicted time, then ask. The prediction follows the measured waits and errs on the short side.

    Whether the result was there first cannot be seen, only that asking took little, which on a machine whose threads
    wake up late is milliseconds. So a wait counts from a share of the step's time on, and the sleep ends when the
    process computes no more.

    Args:
        alone: this process computes without pause until its results are there. False where it may wait for other
            workers in between, which do not get faster when it asks.
    """

    _SHORTEST = 0.002  # seconds; below it a sleep is not worth its wake-up
    _SPIN = 0.001  # seconds, and the share of the step's time: a shorter wait means that the result may have been there
    _SPIN_SHARE = 0.03
    _PARTS = 12  # of a sleep; after each the process is looked at
    _SHORTEST_PART = 0.008  # seconds; Linux may count CPU time in ticks of 4 ms
    _IDLE = 0.1  # CPU seconds per second, of all threads; below it nothing is computed

    def __init__(self, alone: bool = True) -> None:
        self._prediction = 0.0  # seconds from dispatch to the moment to ask
        self._patience = 1 if alone else 3  # parts without computing that end the sleep

    def fetch(self, results: Sequence[Any], dispatched: float) -> list[Any]:
        """Return each result tensor as a NumPy array.

        Args:
            results: tensors that a compiled step returned.
            dispatched: `time.perf_counter()` when the call of the step returned.
        """
        self._sleep(dispatched + self._prediction)
        asked = time.perf_counter()
        values = [tensor.asnumpy() for tensor in results]
        waited, elapsed = time.perf_counter() - asked, asked - dispatched
        if waited < max(self._SPIN, self._SPIN_SHARE * elapsed):
            self._prediction = 0.97 * min(self._prediction, elapsed)  # it may have been there long before: ask earlier
        else:
            # Half of the wait, and a quarter more at the most: one slow step must not make the next ones late.
            self._prediction = min(elapsed + 0.5 * waited, 1.25 * self._prediction + self._SHORTEST)
        return values

    def _sleep(self, until: float) -> None:
        part = max(self._SHORTEST_PART, (until - time.perf_counter()) / self._PARTS)
        began, used = time.perf_counter(), time.process_time()
        idle = 0
        while until - began > self._SHORTEST and idle < self._patience:
            time.sleep(min(part, until - began))
            now, now_used = time.perf_counter(), time.process_time()
            idle = idle + 1 if now_used - used < self._IDLE * (now - began) else 0
            began, used = now, now_used
