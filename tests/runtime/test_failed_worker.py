"""A worker that fails ends the others where neither msrun nor the launcher would."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# A worker that has joined its job, which gives the others 1 s, not 3 s, to print their errors.
WORKER = """
import sys
from resnet_fn.config import cli
from resnet_fn.runtime import failed_worker
failed_worker._FOR_OTHERS = 1
failed_worker.end_job_after_error(4)
"""
SLEEPS = [sys.executable, "-c", "import time; time.sleep(100)"]


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("raise ValueError('disk')", 1),
        ("cli.run('train', lambda _: [][1], [])", 1),
        ("cli.run('train', lambda _: 130, [])", 130),
    ],
)
def test_an_error_of_one_worker_ends_the_others(start, wait_until, end, code):
    """But not the workers of another job, and not if it ended as asked, by a signal."""
    with open("worker_1.log", "w") as log:
        other = start(SLEEPS, "MS_WORKER", 1, stderr=log)
    another_job = start(SLEEPS, "MS_WORKER", 1, port=1)
    scheduler = start(SLEEPS)
    began = time.monotonic()
    failed = start([sys.executable, "-c", WORKER + end], "MS_WORKER", stderr=subprocess.PIPE)
    assert failed.wait(timeout=30) == code
    assert another_job.poll() is None
    if code == 130:
        assert (other.poll(), scheduler.poll()) == (None, None)
        return
    assert other.wait(timeout=30) == -signal.SIGKILL
    assert scheduler.wait(timeout=30) == -signal.SIGTERM
    assert time.monotonic() - began > 1
    assert "worker 4 has failed" in Path("worker_1.log").read_text()


SAVES = """
import os, pathlib, time
pathlib.Path("step-00000001.tmp-1-0123abcd").mkdir()
with open("step-00000001.tmp-1-0123abcd/weights.safetensors", "w") as file:
    print("saving", flush=True)
    time.sleep(3)
os.rename("step-00000001.tmp-1-0123abcd", "step-00000001")
time.sleep(100)
"""


def test_a_worker_that_saves_is_ended_after_that(start):
    saving = start([sys.executable, "-c", SAVES], "MS_WORKER", stdout=subprocess.PIPE)
    assert saving.stdout.readline() == b"saving\n"
    failed = start([sys.executable, "-c", WORKER + "raise ValueError('disk')"], "MS_WORKER", 1)
    assert failed.wait(timeout=30) == 1
    assert saving.wait(timeout=30) == -signal.SIGKILL
    assert Path("step-00000001").exists()
