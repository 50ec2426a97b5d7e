"""This module ends a job's other workers when one has failed and nobody waits for them."""

import atexit
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

from resnet_fn.runtime.job import JobProcess, end_workers, job_processes, running_workers, slot_of
from resnet_fn.runtime.parent import starter_waits

_FOR_OTHERS = 3.0  # seconds for the other workers to print their own errors
_FOR_SAVE = 60.0  # seconds for rank 0 to write a checkpoint, perhaps to a slow disk


def end_job_after_error(rank: int) -> None:
    """Let an error that ends this worker, rank `rank`, end the job's other workers, too.

    Otherwise they would wait for this worker in an all-reduce for MS_CPU_COMM_OP_TIMEOUT seconds,
    and note signals only after that.
    """
    atexit.register(_end_job, rank)


def _end_job(rank: int) -> None:
    error = getattr(sys, "last_value", None)  # of an uncaught exception, or from `cli.run`
    if error is None:
        return
    if not starter_waits():  # msrun or the launcher would end the others
        _end_others(rank)
    for scheduler in job_processes("MS_SCHED"):  # it would wait for a heartbeat for 30 s
        with contextlib.suppress(ProcessLookupError):
            os.kill(scheduler.pid, signal.SIGTERM)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    # To the scheduler, a regular exit means that the worker ended without an error. After `_exit`,
    # the scheduler misses the worker's heartbeat and ends the job on other machines, too.
    os._exit(int(error.code or 0) if isinstance(error, SystemExit) else 1)


def _end_others(rank: int) -> None:
    began = time.monotonic()
    deadline = began + _FOR_OTHERS
    while (others := _others()) and (now := time.monotonic()) < deadline:
        if any(_saves(worker.pid) for worker in others):
            deadline = min(now + _FOR_OTHERS, began + _FOR_SAVE)
        time.sleep(0.1)
    reason = f"error: worker {rank} has failed (see its log), so this worker was ended"
    end_workers(_others(), signal.SIGKILL, reason)


def _saves(pid: int) -> bool:
    """Return whether a process has a file or folder open that is not complete yet.

    Checkpoints and other files have such names until they are (checkpoint/replace.py,
    runtime/disk.py).
    """
    with contextlib.suppress(OSError):  # it has ended
        return any(".tmp-" in os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir())
    return False


def _others() -> list[JobProcess]:
    """Return the workers on this machine, without this one and the processes that it started."""
    slot = slot_of(os.environ)
    return [worker for worker in running_workers() if slot_of(worker.environment) != slot]
