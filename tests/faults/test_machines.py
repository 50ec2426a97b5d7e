"""scripts/launch.py on two machines: network namespaces of one host, that see each other over a cable only."""

import os
import shutil
import signal
import subprocess
import time

import pytest


@pytest.fixture
def two_machines():
    """Two network namespaces with an address each, joined by a cable (a veth pair)."""
    names = [f"resnet-fn-{os.getpid()}-{node}" for node in range(2)]
    devices = [f"rf{os.getpid() % 100000}{node}" for node in range(2)]

    def ip(*words):
        return subprocess.run(["ip", *words], capture_output=True, text=True)

    if not shutil.which("ip") or ip("netns", "add", names[0]).returncode != 0:
        pytest.skip("network namespaces need the ip command and root")
    try:
        steps = [
            ["netns", "add", names[1]],
            ["link", "add", devices[0], "netns", names[0], "type", "veth", "peer", devices[1], "netns", names[1]],
        ]
        for node in range(2):
            steps += [
                ["-n", names[node], "addr", "add", f"10.77.0.{node + 1}/24", "dev", devices[node]],
                ["-n", names[node], "link", "set", devices[node], "up"],
                ["-n", names[node], "link", "set", "lo", "up"],
            ]
        for step in steps:
            done = ip(*step)
            if done.returncode != 0:
                pytest.skip(f"ip {' '.join(step)}: {done.stderr.strip()}")
        yield [["ip", "netns", "exec", name] for name in names]
    finally:
        for name in names:
            ip("netns", "del", name)


def launch_on(launcher, machines, run, logs):
    return [
        launcher.start(
            run,
            *launcher.TRAIN,
            inside=inside,
            options=[
                *("--nnodes", "2", "--node-rank", str(node), "--master-addr", "10.77.0.1"),
                *("--master-port", "8118", "--log-dir", str(logs / f"logs{node}")),
            ],
        )
        for node, inside in enumerate(machines)
    ]


def kill_the_worker_of_machine_1(launcher, run, jobs):
    os.kill(launcher.worker(run, 1), signal.SIGKILL)
    return {0, 1}


def kill_the_launcher_of_machine_1(launcher, run, jobs):
    jobs[1].kill()
    return {0}


def kill_the_launcher_of_machine_0(launcher, run, jobs):
    jobs[0].kill()
    return {1}


@pytest.mark.slow
def test_two_machines(launcher, unbroken_pair, two_machines, tmp_path):
    """A worker on each of two machines. When either dies, the other's job ends within 10 s; then both go on, and end
    with one machine's bits."""
    run = tmp_path / "run"
    beyond = 0
    for fault, code, message in (
        (kill_the_worker_of_machine_1, 137, "launch: worker 1 ended with exit code 137; its log ends:"),
        (kill_the_launcher_of_machine_1, 1, "launch: machine 1 has died; this log ends:"),
        (kill_the_launcher_of_machine_0, 1, "launch: machine 0 has died; this log ends:"),
    ):
        jobs = launch_on(launcher, two_machines, run, tmp_path)
        launcher.wait_for_update(run, jobs[0], beyond)
        left = fault(launcher, run, jobs)
        died = time.monotonic()
        outputs = {node: jobs[node].communicate(timeout=120)[0] for node in left}
        seconds = time.monotonic() - died
        print(f"{fault.__name__}: over after {seconds:.1f} s")
        assert seconds < 10, outputs
        assert all(jobs[node].returncode == code for node in left), outputs
        assert message in outputs[max(left)]
        for job in jobs:
            job.communicate()
        assert not launcher.processes(run), fault.__name__
        beyond = max(int(path.name[5:]) for path in (run / "checkpoints").glob("step-????????"))

    jobs = launch_on(launcher, two_machines, run, tmp_path)
    outputs = [job.communicate(timeout=300)[0] for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], outputs
    assert "best top-1" in outputs[0]
    assert (tmp_path / "logs1" / "worker_1.log").exists()
    assert not launcher.processes(run)
    assert launcher.last_state(run) == unbroken_pair
