"""These functions describe the installation and the machine."""

import os
import platform
from typing import Any

import resnet_fn
from resnet_fn.config.packages import EXTRAS, NEEDED, installed_version
from resnet_fn.runtime import instructions
from resnet_fn.runtime.cpus import cpu_count
from resnet_fn.runtime.process import kernel_threads
from resnet_fn.runtime.workers import Workers

# Variables that change the behaviour of MindSpore and its libraries. The list has names, because
# other programs' variables, whose values may be secret, begin with MS_ or ASCEND_, too.
_TEXT = """
ASCEND_DEVICE_ID ASCEND_GLOBAL_LOG_LEVEL ASCEND_HOME_PATH ASCEND_OPP_PATH ASCEND_RT_VISIBLE_DEVICES
ASCEND_SLOG_PRINT_TO_STDOUT ASCEND_TOOLKIT_HOME DEVICE_ID GLOG_log_dir GLOG_logtostderr GLOG_v
HCCL_BUFFSIZE HCCL_CONNECT_TIMEOUT HCCL_DETERMINISTIC HCCL_EXEC_TIMEOUT HCCL_IF_IP
HCCL_SOCKET_IFNAME MALLOC_ARENA_MAX MS_ALLOC_CONF MS_COMPILER_CACHE_ENABLE MS_COMPILER_CACHE_PATH
MS_CPU_COMM_OP_TIMEOUT MS_DEV_HOST_BLOCKING_RUN MS_DEV_RUNTIME_CONF MS_ENABLE_LCCL
MS_ENABLE_NUMA MS_JIT MS_JIT_MODULES MS_MEMORY_STATISTIC MS_NODE_ID MS_NODE_TIMEOUT MS_OM_PATH
MS_RETRY_INTERVAL_LOWER MS_RETRY_INTERVAL_UPPER MS_ROLE MS_SCHED_HOST MS_SCHED_PORT
MS_SUBMODULE_LOG_v MS_TOPO_TIMEOUT MS_WORKER_NUM OMP_NUM_THREADS OMP_PROC_BIND
ONEDNN_DEFAULT_FPMATH_MODE ONEDNN_MAX_CPU_ISA ONEDNN_VERBOSE OPENBLAS_NUM_THREADS RANK_ID
RANK_SIZE RANK_TABLE_FILE
"""
_VARIABLES = _TEXT.split()


def describe_machine(device: str, threads: int, workers: Workers) -> dict[str, Any]:
    """Return versions, device, threads, packages and environment variables as JSON types."""
    return {
        "resnet_fn": resnet_fn.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": device,
        "cpus": cpu_count(),
        "threads": kernel_threads(threads) if device == "CPU" else 0,
        "cpu": describe_cpu() if device == "CPU" and workers.is_main else {},
        "workers": workers.size,
        "packages": {name: installed_version(name) for name in (*NEEDED, *EXTRAS)},
        "variables": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
    }


def describe_cpu() -> dict[str, Any]:
    """Return the processor's kind, whether it has AVX-512, and which instructions trainings choose,
    as JSON types.
    """
    cpu = instructions.this_cpu()
    return {
        "family": cpu.family,
        "model": cpu.model,
        "avx512": cpu.has_avx512,
        "instructions": instructions.describe(),
    }


def lines_of_cpu(cpu: dict[str, Any]) -> list[str]:
    """Return the result of `describe_cpu` as lines of text.

    If the processor has AVX-512 and is not in the table, a line has what to add.
    """
    kind = cpu["family"], cpu["model"]
    text = [
        f"cpu        family {kind[0]} model {kind[1]}, {'' if cpu['avx512'] else 'no '}AVX-512",
        f"kernels    {cpu['instructions']}",
    ]
    if cpu["avx512"] and kind not in instructions.FASTER_UNLIMITED:
        text += [
            "           nets may train faster with AVX-512: python scripts/benchmark step --net "
            "resnet50-224 --against ours_all",
            "           prints a ratio below 1 for a net that does; add such nets to "
            "FASTER_UNLIMITED in resnet_fn/runtime/instructions.py:",
            f'           {kind}: frozenset({{"resnet50"}}),',
        ]
    return text


def lines(machine: dict[str, Any]) -> list[str]:
    """Return the result of `describe_machine` as lines of text."""
    packages = machine["packages"]
    absent = [name for name in EXTRAS if not packages[name]]
    threads = ""
    if machine["threads"]:
        threads = f", {machine['threads']} threads on {machine['cpus']} CPUs"
    return [
        f"versions   resnet_fn {machine['resnet_fn']}, Python {machine['python']}, "
        f"{machine['system']}",
        "packages   "
        f"{', '.join(f'{name} {version}' for name, version in packages.items() if version)}",
        *[f"           not installed (some commands need them): {', '.join(absent)}"]
        * bool(absent),
        f"device     {machine['device']}{threads}, worker 0 of {machine['workers']}",
        *(lines_of_cpu(machine["cpu"]) if machine["cpu"] else []),
        f"variables  {' '.join(f'{name}={value}' for name, value in machine['variables'].items())}",
    ]
