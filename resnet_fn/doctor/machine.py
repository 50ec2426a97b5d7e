"""These functions describe the installation and the machine."""

import os
import platform
from typing import Any

import resnet_fn
from resnet_fn.config.packages import EXTRAS, NEEDED, installed
from resnet_fn.runtime.cpus import cpu_count
from resnet_fn.runtime.process import kernel_threads
from resnet_fn.runtime.workers import Workers

# Prefixes of variables that change the behaviour of MindSpore and its libraries.
_PREFIXES = ("MS_", "GLOG_", "ONEDNN_", "HCCL_", "ASCEND_", "RANK_", "DEVICE_ID", "OMP_NUM_THREADS", "MALLOC_ARENA_MAX")


def describe_machine(device: str, threads: int, workers: Workers) -> dict[str, Any]:
    """Return versions, device, threads, packages and environment variables as JSON types."""
    return {
        "resnet_fn": resnet_fn.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": device,
        "cpus": cpu_count(),
        "threads": kernel_threads(threads) if device == "CPU" else 0,
        "workers": workers.size,
        "packages": {name: installed(name) for name in (*NEEDED, *EXTRAS)},
        "variables": {name: value for name, value in sorted(os.environ.items()) if name.startswith(_PREFIXES)},
    }


def lines(machine: dict[str, Any]) -> list[str]:
    """Return the result of `describe_machine` as lines of text."""
    packages, variables = machine["packages"], machine["variables"]
    absent = [name for name in EXTRAS if not packages[name]]
    threads = f", {machine['threads']} threads on {machine['cpus']} CPUs" if machine["threads"] else ""
    return [
        f"versions   resnet_fn {machine['resnet_fn']}, Python {machine['python']}, {machine['system']}",
        f"packages   {', '.join(f'{name} {version}' for name, version in packages.items() if version)}",
        *([f"           not installed (some commands need them): {', '.join(absent)}"] if absent else []),
        f"device     {machine['device']}{threads}, worker 0 of {machine['workers']}",
        f"variables  {' '.join(f'{name}={value}' for name, value in variables.items())}",
    ]
