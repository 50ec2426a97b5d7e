"""Choosing the device, threads and environment before MindSpore starts."""

import os
from pathlib import Path

import pytest

from resnet_fn.runtime import process


@pytest.mark.skipif(
    any(Path("/dev").glob("davinci*")), reason="this machine has a card, where it is left alone"
)
def test_the_users_environment_is_never_overridden(python):
    users = {"MS_DEV_HOST_BLOCKING_RUN": "0", "ONEDNN_MAX_CPU_ISA": "SSE41", "GLOG_v": "2"}
    code = f"import os, resnet_fn; print(*(os.environ.get(name) for name in {[*users]}))"
    assert python("-c", code, without="MS_DEV_HOST_BLOCKING_RUN").stdout.startswith("1 ")
    assert python("-c", code, **users).stdout == "0 SSE41 2\n"


def test_negative_threads_and_mindspores_compile_cache_are_rejected(monkeypatch):
    with pytest.raises(ValueError, match=r"^threads: -1 is too small; give 0 or more$"):
        process.start("CPU", -1)
    monkeypatch.setenv("MS_COMPILER_CACHE_ENABLE", "1")
    with pytest.raises(
        ValueError, match="MS_COMPILER_CACHE_ENABLE=1 makes compiled functions return wrong values"
    ):
        process.start()


@pytest.mark.usefixtures("device")
def test_a_second_device_in_a_process_is_rejected():
    with pytest.raises(ValueError, match="device: this process already uses CPU"):
        process.start("Ascend")
    now = process.kernel_threads(0)
    process.start("CPU", now)
    with pytest.raises(
        ValueError, match=rf"^threads: this process already uses {now}; leave threads out, or"
    ):
        process.start("CPU", now + 1)


def test_operations_that_ran_before_are_no_hindrance(python):
    """In a notebook: MindSpore can choose no device then, but it computes on the right one
    already.
    """
    code = (
        "import resnet_fn, mindspore\n"
        "print((mindspore.Tensor([1.0]) + 1).asnumpy())\n"
        "from resnet_fn.runtime import process; process.start('CPU'); process.start('CPU')\n"
        "print((mindspore.Tensor([2.0]) + 1).asnumpy())\n"
    )
    assert python("-c", code).stdout == "[2.]\n[3.]\n"


def test_settings_made_before_start_stay_with_a_warning(python):
    """MindSpore lets determinism be set once."""
    code = (
        "import resnet_fn, mindspore\n"
        "from resnet_fn.runtime import process\n"
        "mindspore.set_deterministic(False)\n"
        "resnet_fn.start(); process.use_exact_kernels()\n"
        "print(mindspore.get_context('deterministic'))"
    )
    done = python("-c", code)
    assert done.stdout == "OFF\n"
    (warning,) = [line for line in done.stderr.splitlines() if "warning: " in line]
    assert warning == (
        "warning: set_deterministic was called before resnet_fn.start; the earlier value is kept, "
        "not True"
    )


def test_threads_set_by_a_script_are_an_error(python):
    """MindSpore lets them be set once, and no function returns them."""
    code = (
        "import resnet_fn, mindspore\n"
        "mindspore.device_context.cpu.op_tuning.threads_num(7)\n"
        "resnet_fn.start(threads=1)"
    )
    assert python("-c", code, code=1).stderr.endswith(
        "\nValueError: threads: this script has called threads_num, and its number cannot be read; "
        "remove that call, and give the number as threads\n"
    )


def test_exact_kernels_turn_on_all_deterministic_settings(python):
    """What a card needs for equal bits, as far as a CPU shows it: MindSpore's own record of what
    was asked for.
    """
    code = (
        "import os, resnet_fn, mindspore\n"
        "from mindspore.device_context.ascend import op_precision\n"
        "from resnet_fn.runtime import process\n"
        "print(mindspore.get_context('deterministic'), os.environ.get('HCCL_DETERMINISTIC'))\n"
        "process.use_exact_kernels()\n"
        "print(mindspore.get_context('deterministic'), os.environ.get('HCCL_DETERMINISTIC'))\n"
        "print(op_precision.function_status['conv_allow_hf32'], "
        "op_precision.function_status['matmul_allow_hf32'])\n"
    )
    done = python("-c", code, without="HCCL_DETERMINISTIC")
    assert done.stdout.splitlines()[-3:] == ["OFF None", "ON true", "True True"], (
        done.stdout + done.stderr
    )


@pytest.mark.parametrize("kind", ["ours", "link", "open", "file"])
def test_a_folder_others_could_own_is_not_used(kind, tmp_path, python):
    """MindSpore writes the graph of a failed compilation there."""
    shared = tmp_path / "tmp"
    shared.mkdir()
    place = shared / f"resnet_fn-{os.getuid()}"
    if kind == "link":
        place.symlink_to(tmp_path)
    elif kind == "open":
        place.mkdir()
        place.chmod(0o777)
    elif kind == "file":
        place.touch()
    code = "import os, resnet_fn; print(os.environ['MS_OM_PATH'])"
    for _ in range(2):
        done = python("-c", code, without="MS_OM_PATH", TMPDIR=str(shared))
        folder = Path(done.stdout.strip())
        assert (folder == place) == (kind == "ours"), done
        status = folder.lstat()
        assert (status.st_uid, status.st_mode & 0o777) == (os.getuid(), 0o700)


def test_mindspore_computes_with_two_threads_at_least(tmp_path, python):
    """As the help of --threads says: by the CPU time of each thread over 60 large products."""
    script = tmp_path / "products.py"
    script.write_text(
        "import os; os.sched_setaffinity(0, range(os.cpu_count()))  # not this test process's one "
        "CPU\n"
        "if len(os.sched_getaffinity(0)) < 2: raise SystemExit('one CPU')\n"
        "from resnet_fn.runtime import process; process.start(threads=1)\n"
        "import numpy as np; from mindspore import Tensor, jit, ops\n"
        "from pathlib import Path\n"
        "x, times = Tensor(np.ones((1024, 1024), np.float32)), ops.MatMul()\n"
        "@jit\n"
        "def f(x): return times(times(x, x), x)\n"
        "for _ in range(30): f(x).asnumpy()\n"
        "for task in Path('/proc/self/task').iterdir():\n"
        "    name, _, fields = (task / 'stat').read_text().partition('(')[2].rpartition(')')\n"
        "    user = int(fields.split()[11])  # ticks of 10 ms\n"
        "    if name.startswith(('ActorThread', 'KernelThread')) and user >= 5: print(name)\n"
    )
    done = python(script, code=None)
    if done.stderr == "one CPU\n":
        pytest.skip("needs two CPUs")
    assert sorted(done.stdout.split()) == ["ActorThread_0", "KernelThread_0"], done.stderr
