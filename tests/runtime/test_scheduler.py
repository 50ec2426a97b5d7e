"""msrun's scheduler process."""

import os
import signal
import socket
import subprocess
import sys
import time

from resnet_fn.runtime.parent import children


def test_a_taken_port_is_named_before_mindspore_tries_it():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        cluster = {
            "MS_ROLE": "MS_SCHED",
            "MS_WORKER_NUM": "2",
            "MS_SCHED_HOST": "127.0.0.1",
            "MS_SCHED_PORT": str(port),
        }
        done = subprocess.run(
            [sys.executable, "-m", "resnet_fn.train"],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, **cluster},
        )
    assert (done.returncode, done.stderr) == (
        1,
        f"train: error: master port {port} at 127.0.0.1 cannot be used (OSError: Address already in use); "
        "give msrun another --master_port\n",
    )


def test_a_signal_does_not_end_it_before_the_workers_of_its_job():
    """Workers save first, and MindSpore lets one that has lost its scheduler wait for it for 20 s."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    job = {**os.environ, "MS_WORKER_NUM": "1", "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": str(port)}
    command = [sys.executable, "-m", "resnet_fn.train"]
    scheduler = subprocess.Popen(command, env={**job, "MS_ROLE": "MS_SCHED"}, stderr=subprocess.DEVNULL)
    workers = [
        subprocess.Popen(["sleep", "100"], env={**job, "MS_ROLE": "MS_WORKER"}),
        subprocess.Popen(["sleep", "100"], env={**job, "MS_ROLE": "MS_WORKER", "MS_SCHED_PORT": "1"}),  # of another job
    ]
    try:
        wait_until(lambda: listens(port))
        for pid in (scheduler.pid, *children(scheduler.pid)):
            os.kill(pid, signal.SIGTERM)
        time.sleep(1)
        assert scheduler.poll() is None
        assert listens(port)
        workers[0].kill()
        workers[0].wait()
        assert scheduler.wait(timeout=20) == 128 + signal.SIGTERM
        wait_until(lambda: not listens(port))
    finally:
        for process in (scheduler, *workers):
            process.kill()
            process.wait()


def test_it_ends_when_it_is_killed():
    """By a signal that nobody can heed; MindSpore's part of it, too."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    job = {"MS_ROLE": "MS_SCHED", "MS_WORKER_NUM": "1", "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": str(port)}
    command = [sys.executable, "-m", "resnet_fn.train"]
    scheduler = subprocess.Popen(command, env={**os.environ, **job}, stderr=subprocess.DEVNULL)
    wait_until(lambda: listens(port))
    scheduler.kill()
    assert scheduler.wait() == -signal.SIGKILL
    wait_until(lambda: not listens(port))


def wait_until(holds):
    deadline = time.monotonic() + 60
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert holds()


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
