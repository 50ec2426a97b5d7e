"""MindSpore's scheduler ends with its job, and never before the workers."""

import os
import signal
import socket
import subprocess
import sys
import time

from resnet_fn.runtime.parent import children

JOIN = (
    "from resnet_fn.runtime import scheduler, workers; scheduler._AFTER_WORKERS = 0.5; "
    "workers.join()"
)
WORKER = [sys.executable, "-c", "import time; time.sleep(100)"]
# a scheduler that ends 2 s, not 60 s, after all have left
UNUSED = "from resnet_fn.runtime import scheduler; scheduler._UNUSED = 2; " + JOIN
LEFT = {"MS_TOPO_TIMEOUT": "600"}  # which msrun sets
# waits for what it has started, as msrun does with --join True
WAITS = (
    "import subprocess, sys; subprocess.run([sys.executable, *sys.argv[sys.argv.index('python') + "
    "1 :]])"
)


def test_a_signal_ends_the_scheduler_after_its_workers(start, wait_for_port):
    """Workers save first, and MindSpore lets one that has lost its scheduler wait for it for 20
    s.
    """
    scheduler = start([sys.executable, "-c", JOIN])
    worker = start(WORKER, "MS_WORKER")
    start(WORKER, "MS_WORKER", port=1)  # of another job
    start(["sleep", "100"], "MS_WORKER")  # as msrun's `tail` processes
    wait_for_port(start.port)
    for pid in (scheduler.pid, *children(scheduler.pid)):
        os.kill(pid, signal.SIGTERM)
    time.sleep(2)
    assert scheduler.poll() is None
    wait_for_port(start.port)
    worker.kill()
    worker.wait()
    assert scheduler.wait(timeout=60) == 128 + signal.SIGTERM
    wait_for_port(start.port, free=True)


def test_ctrl_c_ends_a_scheduler_without_workers(start, wait_for_port):
    """Training has blocked SIGINT by then, for threads that start later."""
    block = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})\n"
    scheduler = start([sys.executable, "-c", block + JOIN])
    wait_for_port(start.port)
    scheduler.send_signal(signal.SIGINT)
    assert scheduler.wait(timeout=60) == 128 + signal.SIGINT


def test_a_killed_scheduler_frees_its_port(start, wait_for_port):
    """By a signal that nobody can heed; MindSpore's part of it, too."""
    scheduler = start([sys.executable, "-m", "resnet_fn.train"])
    wait_for_port(start.port)
    scheduler.kill()
    wait_for_port(start.port, free=True)


def test_the_scheduler_returns_its_childs_exit_code(python):
    """Which is what is left of a signal, 128 + its number; also where SIGCHLD is ignored, as some
    starters have it.
    """
    code = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "from resnet_fn.runtime.scheduler import wait_for_workers_then_exit; "
        "wait_for_workers_then_exit(); {}"
    )
    for end, expected in (("sys.exit(7)", 7), ("os.kill(os.getpid(), signal.SIGKILL)", 137)):
        python("-c", code.format(end), code=expected, seconds=60)


def test_outside_the_main_thread_no_process_is_forked(python):
    code = (
        "import os, threading; from resnet_fn.runtime.scheduler import wait_for_workers_then_exit; "
        "here = os.getpid()\n"
        "def job(): wait_for_workers_then_exit(); print(os.getpid() == here)\n"
        "threading.Thread(target=job).start()"
    )
    done = python("-c", code, seconds=60)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_a_scheduler_without_workers_ends_by_itself(start, wait_for_port, wait_until, says):
    """As msrun leaves it if it fails after the scheduler's start."""
    left = {"env": LEFT, "stderr": subprocess.PIPE, "text": True}
    scheduler = start([sys.executable, "-c", UNUSED], **left)
    alone = start([sys.executable, "-c", UNUSED], port=1)  # msrun did not start it
    wait_for_port(start.port)
    wait_for_port(start.other_port)
    with socket.create_connection(("127.0.0.1", start.port)):  # as a worker of another machine
        time.sleep(3.5)
        assert scheduler.poll() is None
    wait_until(lambda: scheduler.poll() is not None, 10)
    wait_for_port(start.port, free=True)
    says(scheduler.stderr.read(), "no worker has connected for 2 s", "--local_worker_num")
    assert alone.poll() is None


def test_a_scheduler_waits_for_local_workers_and_msrun(start, wait_for_port, wait_until):
    """For workers that still import, and while msrun waits for its processes."""
    worker = start(WORKER, "MS_WORKER")
    scheduler = start([sys.executable, "-c", UNUSED], env=LEFT)
    joins = [sys.executable, "-c", WAITS, "--join", "True", "python", "-c", UNUSED]
    msrun = start(joins, port=1, env=LEFT)
    wait_for_port(start.port)
    wait_for_port(start.other_port)
    time.sleep(3.5)
    assert (scheduler.poll(), msrun.poll()) == (None, None)
    worker.kill()
    worker.wait()
    wait_until(lambda: scheduler.poll() is not None, 10)
    wait_for_port(start.other_port)
    for child in children(msrun.pid):
        os.kill(child, signal.SIGKILL)
    wait_for_port(start.other_port, free=True)
