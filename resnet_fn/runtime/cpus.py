"""These functions count the CPUs of this process and divide them among the workers of this
machine.
"""

import contextlib
import os
import platform
import sys
from collections.abc import Collection
from pathlib import Path

from resnet_fn.runtime.cgroups import cgroup_folders
from resnet_fn.runtime.instructions import this_cpu
from resnet_fn.runtime.job import job_processes, slot_of

_counted: set[int] = set()  # CPUs that this process could use before `keep_to_one_cpu`


def processor() -> str:
    """Return the processor's model name, or the architecture if /proc/cpuinfo has no model name."""
    return this_cpu().name or platform.machine()


def cpu_count() -> int:
    """Return the number of CPUs that this process may use.

    `keep_to_one_cpu` does not lower this number.
    """
    return min(len(_counted or os.sched_getaffinity(0)), cpu_quota())


def cpu_quota(root: Path = Path("/")) -> int:
    """Return how many CPUs the cgroups (v1 or v2) of this process allow, or `sys.maxsize` if there
    is no limit.
    """
    return min(map(_quota_of, cgroup_folders("cpu", root)), default=sys.maxsize)


def _quota_of(folder: Path) -> int:
    with contextlib.suppress(OSError, ValueError):  # no quota here; "max"
        if (file := folder / "cpu.max").exists():
            time, period = map(int, file.read_text().split())
        else:
            time, period = (
                int((folder / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period")
            )
        return max(1, time // period) if time > 0 else sys.maxsize
    return sys.maxsize


def cpu_share() -> int:
    """Return this worker's number of CPUs, at least 1.

    Call this when all workers have started (`workers.join`).
    """
    affinity = os.sched_getaffinity(0)
    masks = list(local_workers().values()) or [affinity]  # the running workers of this machine
    return min(shared(affinity, masks), max(1, cpu_quota() // len(masks)))


def shared(affinity: Collection[int], masks: Collection[Collection[int]]) -> int:
    """Return how many CPUs a worker with this affinity mask gets.

    A CPU that is in n of the `masks` counts 1/n.
    """
    return max(1, int(sum(1 / sum(cpu in mask for mask in masks) for cpu in affinity) + 1e-9))


def keep_to_one_cpu() -> None:
    """Bind this worker to its own CPU if all workers of this machine have the same CPUs, and as
    many as workers.
    """
    cpus = os.sched_getaffinity(0)
    workers = local_workers()
    cpu_of = {slot: {cpu} for slot, cpu in zip(sorted(workers), sorted(cpus), strict=False)}
    # A process that may use two CPUs computes with at least two threads, which would disturb the
    # other workers. Workers that are bound already have one CPU. Other masks mean that somebody
    # else divided the CPUs.
    if len(workers) == len(cpus) and all(workers[slot] in (cpus, cpu_of[slot]) for slot in workers):
        _counted.update(cpus)
        for thread in os.listdir("/proc/self/task"):  # all-reduce already has threads
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread), cpu_of.get(slot_of(os.environ), cpus))


def local_workers() -> dict[tuple[str, ...], set[int]]:
    """Return the affinity masks of this job's workers on this machine, keyed by node id and device
    id.
    """
    if "MS_ROLE" not in os.environ:  # msrun did not start this process
        return {}
    masks: dict[tuple[str, ...], set[int]] = {}
    for process in job_processes(os.environ["MS_ROLE"]):
        with contextlib.suppress(OSError):  # the process ended
            masks.setdefault(slot_of(process.environment), set()).update(
                os.sched_getaffinity(process.pid)
            )
    return masks
