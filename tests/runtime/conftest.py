"""A fixture that starts processes with msrun's variables."""

import os
import subprocess

import pytest

from resnet_fn.runtime.msrun import claim_port


@pytest.fixture
def start():
    """start(command, role, **popen) starts a process with the variables of a job.

    The job's scheduler listens at the port start.port.

    Args:
        role: MS_SCHED or MS_WORKER.
        place: the worker's number on this machine.
        port: that of another job's scheduler.
        popen: arguments of subprocess.Popen.
    """
    started = []

    def run(command, role="MS_SCHED", place=0, port=0, **popen):
        job = {
            "MS_WORKER_NUM": "1",
            "MS_SCHED_HOST": "127.0.0.1",
            "MS_SCHED_PORT": str(port or run.port),
            "MS_ROLE": role,
            "DEVICE_ID": str(place),
            "RANK_ID": str(place),
        }
        environment = {**os.environ, **job}
        popen = {"stderr": subprocess.DEVNULL, **popen}
        started.append(subprocess.Popen(command, env=environment, **popen))
        return started[-1]

    run.port = claim_port("127.0.0.1", 0)
    yield run
    for process in started:
        process.kill()
        process.communicate()
