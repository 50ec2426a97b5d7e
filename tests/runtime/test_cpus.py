"""How the CPUs of a machine are divided among its workers."""

import os
import subprocess
import sys

import pytest

from resnet_fn.runtime.cpus import cpu_count, cpu_quota, shared


@pytest.mark.parametrize(
    ("mine", "masks", "expected"),
    [
        (range(8), [range(8)], 8),
        (range(8), [range(8)] * 3, 2),
        (range(2), [range(2)] * 8, 1),
        (range(4), [range(4), range(4, 8)], 4),  # --bind_core has divided them
        (range(4), [range(4), range(2, 6)], 3),
    ],
)
def test_a_cpu_is_shared_among_its_allowed_processes(mine, masks, expected):
    assert shared(mine, [set(mask) for mask in masks]) == expected


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/", {"cpu.max": "50000 100000"}, 1),
        # the one above limits it
        ("0::/a/b", {"a/cpu.max": "300000 100000", "a/b/cpu.max": "max 100000"}, 3),
        # in a container: the host's path, which is not there
        ("0::/docker/1f", {"cpu.max": "200000 100000"}, 2),
        ("4:memory:/a\n2:cpu,cpuacct:/a\n0::/", {"cpu,cpuacct/a/cpu.cfs_quota_us": "400000"}, 4),
        ("1:cpu:/", {"cpu/cpu.cfs_quota_us": "-1"}, sys.maxsize),
    ],
)
def test_a_quota_of_control_groups_counts_as_cpus(groups, files, expected, write_cgroups):
    """Version 2 (`cpu.max`) and 1: microseconds of the CPUs' time in a period, whose usual length
    is 0.1 s.
    """
    periods = {f"{name.rpartition('/')[0]}/cpu.cfs_period_us": "100000" for name in files}
    assert cpu_quota(write_cgroups(groups, {**files, **periods})) == expected


def worker(rank, code, port=1, **options):
    environment = {
        **os.environ,
        **{"MS_ROLE": "MS_WORKER", "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": str(port)},
        **{"MS_WORKER_NUM": "16", "MS_NODE_ID": str(rank), "DEVICE_ID": str(rank)},
    }
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_cpus_are_shared_with_the_jobs_local_workers():
    """A job of 16 workers, of which one runs here, with a child process; then a second."""
    count = (
        "import os, subprocess, sys; from resnet_fn.runtime.cpus import local_workers, cpu_share\n"
        "child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)\n"
        "print(len(local_workers()), cpu_share())\n"
        "child.communicate(b'x')"
    )
    wait = "print('here', flush=True); input()"
    other_job = worker(1, wait, port=2)
    assert other_job.stdout.readline() == "here\n"
    assert worker(0, count).communicate()[0] == f"1 {cpu_count()}\n"
    neighbour = worker(1, wait)
    assert neighbour.stdout.readline() == "here\n"
    assert worker(0, count).communicate()[0] == f"2 {max(1, cpu_count() // 2)}\n"
    for process in (neighbour, other_job):
        process.communicate("x")


@pytest.mark.skipif(os.cpu_count() < 2, reason="needs two CPUs")
def test_with_as_many_cpus_each_worker_takes_one():
    """And may decode in as many threads as one worker may: a run goes on with its settings, on any
    number.
    """
    cpus = [0, 1]  # this process may be kept to one
    code = (
        "import os; from resnet_fn.runtime.cpus import keep_to_one_cpu; os.sched_setaffinity(0, "
        f"{cpus})\n"
        "print('here', flush=True); input(); keep_to_one_cpu()\n"
        "from resnet_fn.data.sources.load import data_threads\n"
        "print(os.sched_getaffinity(0), data_threads(0), data_threads(2), flush=True); input()"
    )
    workers = [worker(rank, code) for rank in (0, 1)]
    assert [process.stdout.readline() for process in workers] == ["here\n"] * 2
    # the second sees that the first has its own
    for process, cpu in zip(workers, cpus, strict=True):
        print(file=process.stdin, flush=True)
        assert process.stdout.readline() == f"{{{cpu}}} 1 2\n"
    for process in workers:
        process.communicate("x")
