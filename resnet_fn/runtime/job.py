"""These functions find the processes of an msrun job on this machine, and end its workers."""

import contextlib
import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from resnet_fn.runtime.parent import ask_process, start_of

_JOB = ("MS_SCHED_HOST", "MS_SCHED_PORT")  # equal in all processes of a job
# variables that differ between a job's workers; child processes inherit them
_SLOT = ("MS_NODE_ID", "DEVICE_ID")


class JobProcess(NamedTuple):
    """A process to which msrun gave its variables."""

    pid: int
    environment: Mapping[str, str]


def slot_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return a worker's node id and device id, from its environment."""
    return tuple(environment.get(name, "") for name in _SLOT)


def environment_of(pid: int) -> dict[str, str]:
    """Return the variables with which a process was started.

    Returns {} if the process has ended or is another user's.
    """
    return ask_process(pid, "environ", {})


def job_processes(role: str, job: Mapping[str, str] = os.environ) -> list[JobProcess]:
    """Return the processes of a job on this machine that have the role MS_WORKER or MS_SCHED.

    Processes that a worker has started, and the `tail` processes of msrun, have the role, too.

    Args:
        role: the value of MS_ROLE.
        job: the environment of any process of the job.
    """
    import psutil

    wanted = {"MS_ROLE": role, **{name: job.get(name) for name in _JOB}}.items()
    processes = (JobProcess(pid, environment_of(pid)) for pid in psutil.pids())
    return [process for process in processes if wanted <= process.environment.items()]


def running_workers(job: Mapping[str, str] = os.environ) -> list[JobProcess]:
    """Return the workers of a job on this machine that run this process's Python."""
    program = ask_process(os.getpid(), "exe", "")
    return [
        worker
        for worker in job_processes("MS_WORKER", job)
        if ask_process(worker.pid, "exe", "") == program
    ]


def workers_of(scheduler: int) -> list[JobProcess]:
    """Return the running workers that the same msrun started as process `scheduler`.

    A later job that was given the same port has the same variables, but other workers.
    """
    return [
        worker
        for worker in running_workers(environment_of(scheduler))
        if start_of(worker.pid) >= start_of(scheduler) and _logs(worker.pid) == _logs(scheduler)
    ]


def _logs(pid: int) -> str:
    """Return the folder of the log of a process that msrun started."""
    with contextlib.suppress(OSError):
        return os.path.dirname(os.readlink(f"/proc/{pid}/fd/1"))
    return ""


def end_workers(workers: Iterable[JobProcess], number: int, reason: str) -> None:
    """Write a line to stderr of each of these workers, and send them a signal."""
    for worker in workers:
        # it may have ended
        with contextlib.suppress(OSError), open(f"/proc/{worker.pid}/fd/2", "ab") as log:
            log.write(f"{reason}\n".encode("utf-8", "backslashreplace"))
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.pid, number)
