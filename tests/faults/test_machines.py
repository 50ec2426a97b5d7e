"""Two machines, as network namespaces: start, death, late start."""

import contextlib
import os
import shlex
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
            f"netns add {names[1]}",
            f"link add {devices[0]} netns {names[0]} type veth peer {devices[1]} netns {names[1]}",
        ]
        for node in range(2):
            steps += [
                f"-n {names[node]} addr add 10.77.0.{node + 1}/24 dev {devices[node]}",
                f"-n {names[node]} link set {devices[node]} up",
                f"-n {names[node]} link set lo up",
            ]
        for step in steps:
            done = ip(*step.split())
            if done.returncode != 0:
                pytest.skip(f"ip {step}: {done.stderr.strip()}")
        yield names
    finally:
        for name in names:
            ip("netns", "del", name)


def launch_on(launcher, machines, run, logs):
    return [
        launcher.start(
            run,
            inside=["ip", "netns", "exec", name, "env", "MS_NODE_TIMEOUT=10"],  # in place of 30 s
            options=[
                *shlex.split(f"--nnodes 2 --node-rank {node}"),
                *shlex.split("--master-addr 10.77.0.1 --master-port 8118"),
                "--log-dir",
                str(logs / f"logs{node}"),
            ],
        )
        for node, name in enumerate(machines)
    ]


def kill_machine(name):
    """Everything that runs on it, at once."""
    pids = subprocess.run(
        ["ip", "netns", "pids", name], capture_output=True, text=True, check=True
    ).stdout.split()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it has ended with its parent
            os.kill(int(pid), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.release
@pytest.mark.alone
def test_two_machines_resume_after_either_dies(
    launcher, unbroken_pair, two_machines, tmp_path, last_state
):
    """A worker on each of two machines. When either dies, MindSpore's cluster ends the other's job,
    not at once; then both go on, and end with one machine's bits."""
    run = tmp_path / "run"
    for dead, message in (
        (1, "launch: no heartbeat of worker 1 for 10 s: "),
        (0, "error: msrun's scheduler at 10.77.0.1, port 8118 does not answer; check that machine"),
    ):
        jobs = launch_on(launcher, two_machines, run, tmp_path)
        launcher.wait_for_update(run, jobs[0])
        kill_machine(two_machines[dead])
        died = time.monotonic()
        output, _ = jobs[1 - dead].communicate(timeout=200)
        assert time.monotonic() - died < 90
        assert jobs[1 - dead].returncode == 1, output
        assert message in output
        jobs[dead].communicate()
        assert not launcher.processes(run)

    jobs = launch_on(launcher, two_machines, run, tmp_path)
    outputs = [job.communicate(timeout=300)[0] for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], outputs
    assert "best top-1" in outputs[0]
    assert (tmp_path / "logs1" / "worker_1.log").exists()
    assert not launcher.processes(run)
    assert last_state(run)[1] == unbroken_pair


@pytest.mark.slow
@pytest.mark.release
@pytest.mark.alone
def test_a_machine_may_start_two_minutes_later(launcher, two_machines, tmp_path):
    """The scheduler that msrun has left on the first machine waits, because a worker runs there."""
    run = tmp_path / "run"
    for node, name in enumerate(two_machines):
        flags = ["--local_worker_num", "1", "--node_rank", str(node), "--master_addr", "10.77.0.1"]
        job = launcher.start_msrun(
            run,
            8118,
            join=False,
            options=[*flags, "--log_dir", str(tmp_path / f"logs{node}")],
            inside=("ip", "netns", "exec", name),
        )
        assert job.wait(timeout=60) == 0
        time.sleep(120 if node == 0 else 0)
    launcher.wait_for_nobody(run, seconds=300)
    assert "best top-1" in (tmp_path / "logs0" / "worker_0.log").read_text()
