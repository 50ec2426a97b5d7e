"""A process calls `prepare_environment` before it imports MindSpore, and `start`, for device and threads, once."""

import contextlib
import glob
import os
import stat
import sys
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from resnet_fn.config.cli import as_typed
from resnet_fn.config.fields import check_value
from resnet_fn.config.hints import first_line
from resnet_fn.config.options import RunOptions
from resnet_fn.runtime import versions

if TYPE_CHECKING:
    from resnet_fn.runtime.workers import Workers


# With more CPU threads MindSpore measures how many should compute a convolution: last bits vary (docs/mindspore.md).
EXACT_THREADS = 4
# Variables that choose oneDNN's newest instruction set and the precision of its products.
_CHOOSE_KERNELS = ("ONEDNN_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE")


def prepare_environment() -> None:
    """Set the variables that MindSpore reads while it loads. A value that the user has set is never overridden."""
    # GLOG levels: 0 debug, 1 info, 2 warning, 3 error. MindSpore's C++ warnings do not help users of a recipe.
    os.environ.setdefault("GLOG_v", "3")
    # A failed compilation writes rank_0/om/analyze_fail.ir below this folder, by default the current folder.
    if "MS_OM_PATH" not in os.environ:
        os.environ["MS_OM_PATH"] = _private_folder()
    # All-reduce on CPU fails after 30 s by default, but a rank may take longer (rank 0 writes a checkpoint).
    os.environ.setdefault("MS_CPU_COMM_OP_TIMEOUT", "600")
    if not glob.glob("/dev/davinci*"):  # no card
        # A call of a compiled function computes in the calling thread. Otherwise that thread spins while it waits, on a
        # core that the kernels need (docs/mindspore.md).
        os.environ.setdefault("MS_DEV_HOST_BLOCKING_RUN", "1")
    if versions.at_least(2, 9) and _has_avx512():
        # From 2.9 on oneDNN computes 3x3 convolutions by its slow reference kernel with AVX-512, not with AVX2.
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")


def _private_folder() -> str:
    """Return a temporary folder that belongs to this user; never a link or a folder that another user made."""
    path = os.path.join(tempfile.gettempdir(), f"resnet_fn-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    there = os.lstat(path)
    if not stat.S_ISDIR(there.st_mode) or there.st_uid != os.getuid() or there.st_mode & 0o022:
        path = tempfile.mkdtemp(prefix="resnet_fn-")
    return path


def _has_avx512() -> bool:
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="ascii", errors="replace") as cpuinfo:
        return any(line.startswith("flags") and " avx512f " in line + " " for line in cpuinfo)  # on x86 only
    return False


def kernel_threads(threads: int) -> int:
    """Return the number of CPU kernel threads; for 0, this process's share of the CPUs."""
    from resnet_fn.runtime.cpus import cpu_share

    return threads or started.get("threads") or cpu_share()


def set_once(setting: Callable[[Any], None], value: object) -> None:
    """Call `setting(value)`, a MindSpore function that a process may call only once; warn if it was called before."""
    try:
        setting(value)
    except RuntimeError as error:
        if "repeatedly" not in str(error):
            raise
        line = f"warning: {setting.__name__} was called before resnet_fn.start; its value stays, in place of {value}"
        print(line, file=sys.stderr, flush=True)


def kernel_environment() -> dict[str, Any]:
    """Return the settings on which the last bits of an update depend, as JSON types; call it after `start`."""
    from resnet_fn.runtime.cpus import processor

    return {
        "device": started["device"],
        "CPU count": started.get("cpus", 0),
        "thread count": started.get("threads", 0),  # 0 on a card
        "processor": processor(),
        **{name: os.environ.get(name, "not set") for name in _CHOOSE_KERNELS},
        "MindSpore": versions.installed("mindspore"),
        "NumPy": versions.installed("numpy"),
    }


def use_exact_kernels() -> None:
    """Set a card to repeat the same bits and to compute in float32, not HF32. Call this before `communication.init`.

    By default convolutions round to HF32, matrix products do not (mindspore/device_context/ascend/op_precision.py).
    """
    import mindspore
    from mindspore.device_context.ascend import op_precision

    set_once(mindspore.set_deterministic, True)
    set_once(op_precision.conv_allow_hf32, False)
    set_once(op_precision.matmul_allow_hf32, False)


def start(device: str = "", threads: int = 0, fast_math: bool = False) -> "Workers":
    """Choose the device and its kernels, before the first operation, and join the run's other workers (`workers.join`).

    In msrun's scheduler process this call never returns: write no file before it. Further calls change nothing.

    Args:
        device: "CPU" or "Ascend"; "": the device of an earlier call, else the CPU.
        threads: number of CPU kernel threads; 0: this process's share of the CPUs.
        fast_math: on a card, allow HF32 and results that vary (`use_exact_kernels` is not called).

    Raises:
        ValueError: MindSpore's compile cache is on, which computes garbage (docs/lab.md); or device or threads are
            invalid, or differ from an earlier call's.
    """
    check_value(RunOptions, "threads", threads)
    device = device or started.get("device", "CPU")
    garbage = "makes MindSpore return garbage from a compiled function on the second run"
    if os.environ.get("MS_COMPILER_CACHE_ENABLE", "0") not in ("0", ""):
        raise ValueError(f"MS_COMPILER_CACHE_ENABLE=1 {garbage}; unset it")
    import mindspore

    from resnet_fn.runtime.cpus import keep_to_one_cpu
    from resnet_fn.runtime.workers import join

    if context("enable_compile_cache"):
        raise ValueError(f"set_context(enable_compile_cache=True) {garbage}; leave it out")
    if started.get("device", device) != device:
        raise ValueError(f"device: this process already computes on {started['device']}; start another for {device}")
    if "device" in started:
        if device == "CPU" and threads not in (0, now := started["threads"]):
            raise ValueError(f"threads: this process already computes with {now}; leave it out, or start another")
        return join(device)
    if os.environ.get("RANK_ID", "0") == "0":  # msrun gives each worker its rank
        for warning in versions.warnings():
            print(as_typed(warning), file=sys.stderr, flush=True)
    try:
        mindspore.set_device(device)
    except (RuntimeError, ValueError) as error:
        # After the first operation no device can be chosen; this is no error if the right one is in use.
        if mindspore.get_current_device().device_target != device:
            raise ValueError(f"device: {device!r} is not available here ({first_line(error)}); use CPU") from None
    if device == "CPU":
        from mindspore.device_context.cpu import op_tuning

        join(device)  # workers can be counted only when all have started
        if threads <= 1:
            keep_to_one_cpu()
        started.update(threads=kernel_threads(threads), cpus=len(os.sched_getaffinity(0)))
        set_once(op_tuning.threads_num, started["threads"])  # read when the first operation runs
    elif not fast_math:
        use_exact_kernels()
    started.update(device=device, HF32="as it comes" if fast_math and device != "CPU" else "off")
    return join(device)


def context(name: str) -> Any:
    """Return a setting of MindSpore. Only this function calls `get_context`, which a later MindSpore will remove."""
    import mindspore

    return mindspore.get_context(name)


started: dict[str, Any] = {}  # device and threads that `start` has set, which MindSpore does not all report
