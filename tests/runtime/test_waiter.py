"""Waiting for a result without burning a core, and without being late."""

import threading
import time

import numpy as np
import pytest

from resnet_fn.runtime.waiter import ResultWaiter


class _Device(threading.Thread):
    """Computes on another thread until a given time, as MindSpore does; its result takes a while to fetch then."""

    def __init__(self, ready, fetching=0.0):
        super().__init__()
        self.ready, self.fetching, self.spun = ready, fetching, 0.0
        self.start()

    def run(self):
        angles = np.ones(20_000)
        while time.perf_counter() < self.ready:
            np.sin(angles)  # without the interpreter's lock, in this thread alone

    def asnumpy(self):
        now = time.perf_counter()
        while time.perf_counter() < self.ready:
            pass
        time.sleep(self.fetching)
        self.spun = time.perf_counter() - now
        self.join()
        return np.zeros(1)


def _steps(waiter, seconds, count, fetching=0.0):
    """Seconds spent asking, and seconds between the result and its fetching: the least of the last steps.

    A machine that is busy with something else only adds to them.
    """
    spun, late = [], []
    for _ in range(count):
        dispatched = time.perf_counter()
        result = _Device(dispatched + seconds, fetching)
        waiter.fetch([result], dispatched)
        spun.append(result.spun)
        late.append(time.perf_counter() - dispatched - seconds)
    return min(spun[-8:]), min(late[-8:])


def test_waiting_learns_to_sleep_and_follows_a_faster_device():
    waiter = ResultWaiter()
    spun, late = _steps(waiter, 0.04, 40)
    assert spun < 0.012  # most of the wait is slept
    assert late < 0.004
    _, late = _steps(waiter, 0.02, 40)
    assert late < 0.004


@pytest.mark.parametrize("alone", [True, False])
def test_results_that_take_milliseconds_to_fetch_are_not_waited_for_ever_longer(alone):
    # Each fetch was taken for a wait of 4 ms, and the prediction grew by half of that in every step: 0.2 s here.
    waiter = ResultWaiter(alone)
    _, late = _steps(waiter, 0.03, 100, fetching=0.004)
    assert late < 0.045  # three parts of a sleep, at most


def test_the_sleep_ends_when_nothing_is_computed_any_more():
    waiter = ResultWaiter()
    waiter._prediction = 1.0
    _, late = _steps(waiter, 0.1, 1)
    assert late < 0.3  # up to three parts of the sleep
    assert waiter._prediction < 0.4
