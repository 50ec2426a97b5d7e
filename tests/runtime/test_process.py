import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from resnet_fn.runtime import process


def test_convolutions_are_not_on_the_reference_kernel():
    """oneDNN's own log names the kernel of a 3x3 convolution: never `ref:any`, which is 100 times slower."""
    code = (
        "from resnet_fn import runtime; process.start()\n"
        "import numpy as np; from mindspore import Tensor; from resnet_fn.models.resnet import conv\n"
        "conv(16, 16, 3)(Tensor(np.ones((2, 16, 16, 16), np.float32))).asnumpy()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "ONEDNN_VERBOSE": "1"},
    )
    lines = [line for line in done.stdout.splitlines() if ",convolution," in line]
    assert lines, done.stdout + done.stderr
    assert not any("ref:any" in line for line in lines), lines


def test_the_compile_cache_is_refused(monkeypatch):
    monkeypatch.setenv("MS_COMPILER_CACHE_ENABLE", "1")
    with pytest.raises(ValueError, match="MS_COMPILER_CACHE_ENABLE=1 makes MindSpore return garbage"):
        process.start()


@pytest.mark.usefixtures("device")
def test_another_device_in_one_process_is_refused():
    with pytest.raises(ValueError, match="device: this process already computes on CPU"):
        process.start("Ascend")


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
    """Seconds spent asking, and seconds between the result and its fetching: medians of the last steps."""
    spun, late = [], []
    for _ in range(count):
        dispatched = time.perf_counter()
        result = _Device(dispatched + seconds, fetching)
        waiter.fetch([result], dispatched)
        spun.append(result.spun)
        late.append(time.perf_counter() - dispatched - seconds)
    return np.median(spun[-8:]), np.median(late[-8:])


def test_waiting_learns_to_sleep_and_follows_a_faster_device():
    waiter = process.ResultWaiter()
    spun, late = _steps(waiter, 0.04, 40)
    assert spun < 0.012  # most of the wait is slept
    assert late < 0.004
    _, late = _steps(waiter, 0.02, 40)
    assert late < 0.004


@pytest.mark.parametrize("alone", [True, False])
def test_results_that_take_milliseconds_to_fetch_are_not_waited_for_ever_longer(alone):
    # Each fetch was taken for a wait of 4 ms, and the prediction grew by half of that in every step: 0.2 s here.
    waiter = process.ResultWaiter(alone)
    _, late = _steps(waiter, 0.03, 100, fetching=0.004)
    assert late < 0.045  # three parts of a sleep, at most


def test_the_sleep_ends_when_nothing_is_computed_any_more():
    waiter = process.ResultWaiter()
    waiter._prediction = 1.0
    _, late = _steps(waiter, 0.1, 1)
    assert late < 0.3  # up to three parts of the sleep
    assert waiter._prediction < 0.4
