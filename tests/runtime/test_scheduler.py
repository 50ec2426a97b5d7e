"""msrun's scheduler process."""

import os
import signal
import socket
import subprocess
import sys
import time

from resnet_fn.runtime.msrun import claim_port
from resnet_fn.runtime.parent import children


def test_a_signal_does_not_end_it_before_the_workers_of_its_job(wait_until):
    """Workers save first, and MindSpore lets one that has lost its scheduler wait for it for 20 s."""
    job = job_at(port := claim_port("127.0.0.1", 0))
    code = "from resnet_fn.runtime import scheduler, workers; scheduler._AFTER_WORKERS = 0.5; workers.join()"
    command = [sys.executable, "-c", code]
    scheduler = subprocess.Popen(command, env={**job, "MS_ROLE": "MS_SCHED"}, stderr=subprocess.DEVNULL)
    worker = [sys.executable, "-c", "import time; time.sleep(100)"]
    workers = [
        subprocess.Popen(worker, env={**job, "MS_ROLE": "MS_WORKER"}),
        subprocess.Popen(worker, env={**job, "MS_ROLE": "MS_WORKER", "MS_SCHED_PORT": "1"}),  # of another job
        subprocess.Popen(["sleep", "100"], env={**job, "MS_ROLE": "MS_WORKER"}),  # as msrun's `tail` processes
    ]
    try:
        wait_until(lambda: listens(port))
        for pid in (scheduler.pid, *children(scheduler.pid)):
            os.kill(pid, signal.SIGTERM)
        time.sleep(2)
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


def test_ctrl_c_ends_it_where_no_worker_is_left(wait_until):
    """Training has blocked SIGINT by then, for threads that start later."""
    port = claim_port("127.0.0.1", 0)
    code = (
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})\n"
        "from resnet_fn.runtime import scheduler, workers; scheduler._AFTER_WORKERS = 0.5; workers.join()"
    )
    environment = {**job_at(port), "MS_ROLE": "MS_SCHED"}
    scheduler = subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: listens(port))
        scheduler.send_signal(signal.SIGINT)
        assert scheduler.wait(timeout=20) == 128 + signal.SIGINT
    finally:
        scheduler.kill()


def test_it_ends_when_it_is_killed(wait_until):
    """By a signal that nobody can heed; MindSpore's part of it, too."""
    job = job_at(port := claim_port("127.0.0.1", 0))
    command = [sys.executable, "-m", "resnet_fn.train"]
    scheduler = subprocess.Popen(command, env={**job, "MS_ROLE": "MS_SCHED"}, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: listens(port))
    finally:
        scheduler.kill()
    assert scheduler.wait() == -signal.SIGKILL
    wait_until(lambda: not listens(port))


def test_it_ends_with_the_exit_code_of_its_child(python):
    """Which is what is left of a signal, 128 + its number; also where SIGCHLD is ignored, as some starters have it."""
    code = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "from resnet_fn.runtime.scheduler import wait_for_workers_then_exit; wait_for_workers_then_exit(); {}"
    )
    for end, expected in (("sys.exit(7)", 7), ("os.kill(os.getpid(), signal.SIGKILL)", 137)):
        python("-c", code.format(end), code=expected, seconds=60)


def test_outside_the_main_thread_it_is_as_mindspore_has_it(python):
    code = (
        "import os, threading; from resnet_fn.runtime.scheduler import wait_for_workers_then_exit; here = os.getpid()\n"
        "def job(): wait_for_workers_then_exit(); print(os.getpid() == here)\n"
        "threading.Thread(target=job).start()"
    )
    done = python("-c", code, seconds=60)
    assert (done.stdout, done.stderr) == ("True\n", "")


def job_at(port):
    """The environment of a job's processes, but for their roles."""
    return {**os.environ, "MS_WORKER_NUM": "1", "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": str(port)}


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
