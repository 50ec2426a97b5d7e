"""Fixtures that start processes with msrun's variables, and that write a machine's cgroups."""

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


@pytest.fixture
def write_cgroups(tmp_path):
    """write_cgroups(groups, files) writes a /proc/self/cgroup and files of /sys/fs/cgroup; returns
    the root of both.
    """

    def write(groups, files):
        files = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
        for name, text in {**files, "proc/self/cgroup": groups}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        return tmp_path

    return write
