"""A fixture that starts processes with msrun's variables."""

import os
import subprocess

import pytest

from resnet_fn.runtime.msrun import claim_port


@pytest.fixture
def start():
    """start(command, role, **popen) starts a process with the variables of a job.

    The job's scheduler listens at the port start.port, or start.other_port with port=1.

    Args:
        role: MS_SCHED or MS_WORKER.
        place: the worker's number on this machine.
        port: 0 or 1.
        popen: arguments of subprocess.Popen; `env` holds more variables.
    """
    started = []

    def run(command, role="MS_SCHED", place=0, port=0, env=(), **popen):
        job = {
            "MS_WORKER_NUM": "1",
            "MS_SCHED_HOST": "127.0.0.1",
            "MS_SCHED_PORT": str((run.port, run.other_port)[port]),
            "MS_ROLE": role,
            "DEVICE_ID": str(place),
            "RANK_ID": str(place),
        }
        environment = {**os.environ, **job, **dict(env)}
        popen = {"stderr": subprocess.DEVNULL, **popen}
        started.append(subprocess.Popen(command, env=environment, **popen))
        return started[-1]

    run.port = claim_port("127.0.0.1", 0)
    run.other_port = claim_port("127.0.0.1", 0)
    yield run
    for process in started:
        process.kill()
        process.communicate()
