"""The process: environment, device, threads, set once; and how the loop waits for the device.

`prepare_environment` runs when the package is imported, before MindSpore; it imports nothing heavy.
"""

import os
import platform
import tempfile
import time
from collections.abc import Sequence
from typing import Any


def prepare_environment() -> None:
    """Set what MindSpore reads while it loads. A value that the user has set is never overridden."""
    # GLOG levels: 0 debug, 1 info, 2 warning, 3 error. MindSpore's C++ warnings are not for users of a recipe.
    os.environ.setdefault("GLOG_v", "3")
    # A failing compilation writes rank_0/om/analyze_fail.ir below this folder; its default is the user's own.
    os.environ.setdefault("MS_OM_PATH", os.path.join(tempfile.gettempdir(), f"resnet_fn-{os.getuid()}"))
    # All-reduce on CPU gives up after 30 s by default; a rank may rightly be late (rank 0 writes a checkpoint).
    os.environ.setdefault("MS_CPU_COMM_OP_TIMEOUT", "600")
    if _avx512_convolutions_are_slow():
        # MindSpore 2.9 and 2.10 with AVX-512 take oneDNN's reference kernel for 3x3 convolutions on NCHW data:
        # 7,600 ms instead of 38 ms for [32, 64, 32, 32]. With AVX2 as the ceiling they take the JIT GEMM kernel.
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")


def _avx512_convolutions_are_slow() -> bool:
    if platform.machine() not in ("x86_64", "AMD64"):
        return False
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as cpuinfo:
            return any(line.startswith("flags") and " avx512f " in line + " " for line in cpuinfo)
    except OSError:
        return False


def cpu_count() -> int:
    """The number of CPUs that this process may use (its affinity mask, not the machine's size)."""
    return len(os.sched_getaffinity(0))


def start(device: str = "CPU", threads: int = 0) -> None:
    """Choose the device and its kernel threads. Call it once, before the first operation.

    Args:
        device: "CPU" or "Ascend".
        threads: CPU kernel threads; 0 takes this process's CPUs, shared evenly among the workers on this machine.

    Raises:
        ValueError: the compile cache is on (MS_COMPILER_CACHE_ENABLE): with a jit *function* MindSpore 2.10
            silently gives garbage on the second run.
    """
    if os.environ.get("MS_COMPILER_CACHE_ENABLE", "0") not in ("0", ""):
        raise ValueError(
            "MS_COMPILER_CACHE_ENABLE=1 makes MindSpore return garbage from a compiled function on the second run; "
            "unset it"
        )
    import mindspore

    if _started.get("device", device) != device:
        raise ValueError(f"device: this process already computes on {_started['device']}; start another for {device}")
    if "device" in _started:
        return
    try:
        mindspore.set_device(device)
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"device: {device!r} is not available here ({first_line(error)}); use CPU") from None
    if device == "CPU":
        from mindspore.device_context.cpu import op_tuning

        local_workers = int(os.environ.get("MS_WORKER_NUM", "1")) if "MS_ROLE" in os.environ else 1
        op_tuning.threads_num(threads or max(1, cpu_count() // local_workers))
    _started["device"] = device


_started: dict[str, str] = {}  # a process has one device and one thread pool, for good


def first_line(error: BaseException) -> str:
    """The first line of an error's text that says something (MindSpore's own are framed with dashes)."""
    lines = [line.strip(" -") for line in str(error).splitlines()]
    return next((line for line in lines if line), type(error).__name__)


class ResultWaiter:
    """Fetches a step's results without burning a core while the device still computes.

    MindSpore's Python thread spins while it waits for a jit result and takes a core from the kernels: on 2 cores
    a ResNet-20 step at 16x16, batch 64, takes 220 ms when the result is asked for at once, 98 ms when the waiting
    thread has SCHED_IDLE, 60 ms when it sleeps until shortly before the result is there (medians of 90, one run).
    So: sleep for the predicted time, then ask. The prediction follows the measured waits and errs on the short side.

    When the result was there first cannot be seen, only that asking took little. On a machine whose threads wake up
    late, "little" is milliseconds: taken for a wait, they once let the prediction grow by the step, from 0.1 to 2 s.
    So a wait counts from a share of the step's time on, and the sleep ends when the process computes no more.

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
