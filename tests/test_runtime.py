import os
import subprocess
import sys
import time

import numpy as np
import pytest

from resnet_fn import runtime


def test_convolutions_are_not_on_the_reference_kernel():
    """oneDNN's own log names the kernel of a 3x3 convolution: never `ref:any`, which is 100 times slower."""
    code = (
        "from resnet_fn import runtime; runtime.start()\n"
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
        runtime.start()


@pytest.mark.usefixtures("device")
def test_another_device_in_one_process_is_refused():
    with pytest.raises(ValueError, match="device: this process already computes on CPU"):
        runtime.start("Ascend")


class _Result:
    """Stands for a device result that is ready at a given time."""

    def __init__(self, ready):
        self.ready = ready
        self.spun = 0.0

    def asnumpy(self):
        now = time.perf_counter()
        while time.perf_counter() < self.ready:
            pass
        self.spun = time.perf_counter() - now
        return np.zeros(1)


def test_waiting_learns_to_sleep_and_follows_a_faster_device():
    waiter = runtime.ResultWaiter()

    def steps(seconds, count):
        spun, late = [], []
        for _ in range(count):
            dispatched = time.perf_counter()
            result = _Result(dispatched + seconds)
            waiter.fetch([result], dispatched)
            spun.append(result.spun)
            late.append(time.perf_counter() - dispatched - seconds)
        return np.median(spun[-8:]), np.median(late[-8:])

    spun, late = steps(0.04, 40)
    assert spun < 0.012  # most of the wait is slept
    assert late < 0.004
    spun, late = steps(0.02, 40)
    assert late < 0.004
