"""scripts/launch.py on several machines: launchers of one host whose workers only sleep, then training in two network
namespaces that see each other over a cable only."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest


def is_free(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def three_launchers(launcher, folder, port):
    sleep = ["python", "-c", "import time; time.sleep(100)", str(folder)]
    for node in range(3):
        words = ["--workers", "3", "--nnodes", "3", "--node-rank", str(node), "--master-port", str(port)]
        yield subprocess.Popen(
            [sys.executable, str(launcher.PATH), *words, "--", *sleep],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "codes", "messages"),
    [
        ("launcher 2", {0: 1, 1: 1}, {0: "machine 2 has died", 1: "machine 0 ended with exit code 1"}),
        ("launcher 0", {1: 1, 2: 1}, {1: "machine 0 has died", 2: "machine 0 has died"}),
        ("worker 1", {0: 137, 1: 137, 2: 137}, {0: "machine 1 ended with exit code 137", 1: "worker 1 ended with"}),
    ],
)
def test_the_end_of_one_machine_is_the_end_of_all(launcher, fault, codes, messages, tmp_path):
    """Whatever is killed; somebody else who connects to the launchers' port and leaves changes nothing."""
    port = next(port for port in range(20000, 30000, 7) if is_free(port) and is_free(port + 1))
    jobs = list(three_launchers(launcher, tmp_path, port))
    deadline = time.monotonic() + 60
    while any(launcher.worker(tmp_path, rank) is None for rank in range(3)) and time.monotonic() < deadline:
        time.sleep(0.1)
    socket.create_connection(("127.0.0.1", port + 1)).close()
    time.sleep(2)  # they have met
    assert [job.poll() for job in jobs] == [None] * 3
    what, number = fault.split()
    os.kill(launcher.worker(tmp_path, int(number)) if what == "worker" else jobs[int(number)].pid, signal.SIGKILL)
    died = time.monotonic()
    outputs = [job.communicate(timeout=60)[0] for job in jobs]
    assert time.monotonic() - died < 10
    assert {node: jobs[node].returncode for node in codes} == codes, outputs
    for node, message in messages.items():
        assert f"launch: {message}" in outputs[node]
    assert not launcher.processes(tmp_path)


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
