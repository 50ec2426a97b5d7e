"""This module sets the environment variables, the device and the CPU threads of a process."""

import contextlib
import functools
import glob
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from resnet_fn.config.cli import with_typed_command
from resnet_fn.config.options import RunOptions
from resnet_fn.config.packages import installed_version
from resnet_fn.config.printing import say, warn
from resnet_fn.config.wording import first_line
from resnet_fn.runtime import instructions, versions
from resnet_fn.runtime.cpus import cpu_share, keep_to_one_cpu, processor
from resnet_fn.runtime.launchers import check_launcher

if TYPE_CHECKING:
    from resnet_fn.runtime.workers import Workers


# With more CPU threads, the last bits of convolutions can vary between runs (docs/reliability.md).
EXACT_THREADS = 4
# Environment variables that choose oneDNN's instruction set and the precision of products.
_CHOOSE_KERNELS = (instructions.VARIABLE, "ONEDNN_DEFAULT_FPMATH_MODE")
REASON = "reason for convolutions"  # name in `kernel_environment`
started: dict[str, Any] = {}  # what `start` has set; MindSpore does not report all of it


def prepare_environment() -> None:
    """Set environment variables that MindSpore reads during import, unless the user has set
    them.
    """
    # GLOG levels: 0 debug, 1 info, 2 warning, 3 error. MindSpore's C++ warnings do not help users
    # of a recipe.
    os.environ.setdefault("GLOG_v", "3")
    # A failed compilation writes rank_0/om/analyze_fail.ir below MS_OM_PATH, by default the current
    # folder.
    if "MS_OM_PATH" not in os.environ:
        os.environ["MS_OM_PATH"] = _private_folder()
    # All-reduce on CPU fails after 30 s by default. Workers may wait longer, for example for a
    # checkpoint of rank 0.
    os.environ.setdefault("MS_CPU_COMM_OP_TIMEOUT", "600")
    if not glob.glob("/dev/davinci*"):  # no card
        # Compiled functions then compute in the calling thread, which otherwise spins on a core
        # (docs/mindspore.md).
        os.environ.setdefault("MS_DEV_HOST_BLOCKING_RUN", "1")
    instructions.limit()


def _private_folder() -> str:
    path = os.path.join(tempfile.gettempdir(), f"resnet_fn-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    status = os.lstat(path)
    # Another user may have made a folder or a link of this name.
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        path = tempfile.mkdtemp(prefix="resnet_fn-")
    return path


def kernel_threads(threads: int) -> int:
    """Return `threads`, or the number of CPU kernel threads if `threads` is 0: the number that
    `start` has set, or the default number.
    """
    return threads or started.get("threads") or cpu_share()


def set_once(setting: Callable[[Any], None], value: object) -> bool:
    """Call the MindSpore function `setting`, which accepts one call per process.

    If it was called before, warn and return False.
    """
    try:
        setting(value)
        return True
    except RuntimeError as error:
        if "repeatedly" not in str(error):
            raise
        name = setting.__name__
        warn(f"{name} was called before resnet_fn.start; the earlier value is kept, not {value}")
        return False


def kernel_choices() -> dict[str, str]:
    """Return the environment variables that choose CPU kernels, and how convolutions are computed.

    All workers need the same values: each worker computes the norm and the optimizer itself, so
    that their weights would drift apart. Returns {} on a card.
    """
    if started.get("device") != "CPU":
        return {}
    values = {name: os.environ.get(name, "not set") for name in _CHOOSE_KERNELS}
    return {**values, "convolutions": instructions.choice().convolutions}


def kernel_environment() -> dict[str, Any]:
    """Return settings that can change rounding, such as device and thread count.

    Call this function after `start`.
    """
    return {
        "device": started["device"],
        "CPU count": started.get("cpus", 0),
        "thread count": started.get("threads", 0),  # 0 on a card
        "processor": processor(),
        **kernel_choices(),
        REASON: instructions.choice().why,
        **_versions(),
    }


@functools.cache  # because pip's lists are searched for 4 ms, and an epoch may be saved twice
def _versions() -> dict[str, str]:
    return {"MindSpore": installed_version("mindspore"), "NumPy": installed_version("numpy")}


def use_exact_kernels() -> bool:
    """Make an Ascend card compute reproducibly and in float32.

    Call this before `communication.init`. Returns False if the script had set HF32 before.
    """
    import mindspore
    from mindspore.device_context.ascend import op_precision

    set_once(mindspore.set_deterministic, True)
    # convolutions round to HF32 by default, matrix products do not
    of_convolutions = set_once(op_precision.conv_allow_hf32, False)
    return set_once(op_precision.matmul_allow_hf32, False) and of_convolutions


def start(device: str = "", threads: int = 0, fast_math: bool = False) -> "Workers":
    """Choose the device and the CPU threads, and join the other workers if msrun started this
    process.

    Call this function before the first MindSpore operation, and before your script writes files.
    msrun also runs the script in a scheduler process, in which `start` never returns. Further calls
    change nothing.

    Args:
        device: "CPU" or "Ascend". The default, "", is the device of an earlier call, or the CPU in
            the first call.
        threads: Number of CPU threads that compute kernels. 0 means this process's share of the
            CPUs.
        fast_math: If True, an Ascend card may compute in HF32 (shorter floats), and results may
            vary between runs.

    Returns:
        The rank of this worker and the number of workers.

    Raises:
        ValueError: If `device` or `threads` is invalid, or if an earlier call chose another value.
        ValueError: If the script has called `threads_num` of MindSpore, whose number cannot be
            read.
        ValueError: If MindSpore's compile cache is on, because the cache gives wrong results
            (docs/benchmarks.md).
        ValueError: If another launcher than msrun started several processes, which cannot join.
    """
    check_launcher()
    return prepare(device, threads, fast_math)


def prepare(device: str = "", threads: int = 0, fast_math: bool = False) -> "Workers":
    """Do what `start` does, also in one of several processes that need not join."""
    RunOptions.declarations["threads"].checked(threads)
    device = device or started.get("device", "CPU")
    gives_wrong_values = "makes compiled functions return wrong values in the second run"
    if os.environ.get("MS_COMPILER_CACHE_ENABLE", "0") not in ("0", ""):
        raise ValueError(f"MS_COMPILER_CACHE_ENABLE=1 {gives_wrong_values}; unset it")
    import mindspore

    from resnet_fn.runtime.workers import join

    if context("enable_compile_cache"):
        raise ValueError(
            f"set_context(enable_compile_cache=True) {gives_wrong_values}; leave it out"
        )
    if started.get("device", device) != device:
        raise ValueError(
            f"device: this process already uses {started['device']}; start another process for "
            f"{device}"
        )
    if "device" in started:
        current = started.get("threads", 0)
        if device == "CPU" and threads not in (0, current):
            raise ValueError(
                f"threads: this process already uses {current}; leave threads out, or start a new "
                "process"
            )
        return join(device)
    is_first = os.environ.get("RANK_ID", "0") == "0"  # msrun gives each worker its rank
    if is_first and (warning := versions.warning()):
        say(with_typed_command(warning), stream=sys.stderr)
    try:
        mindspore.set_device(device)
    except (RuntimeError, ValueError) as error:
        # After the first operation no device can be chosen. This is no error if the wanted device
        # is in use.
        if mindspore.get_current_device().device_target != device:
            raise ValueError(
                f"device: {device!r} is not available here ({first_line(error)}); use CPU"
            ) from None
    if device == "CPU":
        from mindspore.device_context.cpu import op_tuning

        join(device)  # workers can be counted only when all have started
        if threads <= 1:
            keep_to_one_cpu()
        wanted = kernel_threads(threads)  # MindSpore reads it when the first operation runs
        try:
            op_tuning.threads_num(wanted)
        except RuntimeError as error:
            if "repeatedly" not in str(error):
                raise
            # it accepts one call per process, and nothing returns the number
            raise ValueError(
                "threads: this script has called threads_num, and its number cannot be read; "
                "remove that call, and give the number as threads"
            ) from None
        started.update(threads=wanted, cpus=len(os.sched_getaffinity(0)))
    exact = device == "CPU" or (not fast_math and use_exact_kernels())
    started.update(device=device, HF32="off" if exact else "as it comes")
    return join(device)


def context(name: str) -> Any:
    """Return the value of a MindSpore context setting."""
    import mindspore

    return mindspore.get_context(name)  # called only here, because a later MindSpore removes it


@contextlib.contextmanager
def ending_mixed_precision() -> Iterator[None]:
    """If a cell with `to_float` raises an error in a `with` block, end the mixed precision that
    MindSpore leaves on.

    If the cell is not compiled, MindSpore would compute all later operations of this process in the
    cell's precision.
    """
    try:
        yield
    except Exception:
        import mindspore
        from mindspore import Tensor, ops

        # MindSpore has no public function for this
        from mindspore._c_expression import MixedPrecisionType
        from mindspore.common.api import _pynative_executor

        ones = [Tensor([1.0], dtype) for dtype in (mindspore.float16, mindspore.float32)]
        with contextlib.suppress(RuntimeError):  # the device may be lost
            for _ in range(100):  # each round ends the mixed precision of one cell
                with contextlib.suppress(TypeError):  # bfloat16 may have no kernel
                    if all(ops.Neg()(tensor).dtype == tensor.dtype for tensor in ones):
                        break
                _pynative_executor.set_mixed_precision_type(MixedPrecisionType.NOTSET, False)
        raise
