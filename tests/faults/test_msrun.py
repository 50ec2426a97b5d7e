"""msrun as README writes it, without our launcher: what becomes of its workers when it ends, or
cannot start.

(Its death in training: test_launcher.)
"""

import contextlib
import os
import socket
import time
from pathlib import Path

import pytest

from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.runtime.msrun import claim_port

FAULTY = str(Path(__file__).parent / "drivers" / "faulty_worker.py")


@pytest.mark.slow
@pytest.mark.release
def test_no_process_survives_msruns_death_before_joining(launcher, tmp_path):
    """Nobody tells the scheduler then that they have left; the `tail` processes look like
    workers.
    """
    run = tmp_path / "run"

    def loading() -> set[int]:
        """The ranks that load MindSpore: from then on, they end with msrun."""
        ranks = set()
        for pid in launcher.workers_of(run):
            with contextlib.suppress(OSError):
                if "mindspore" in Path(f"/proc/{pid}/maps").read_text():
                    ranks.add(launcher.rank_of(pid))
        return ranks

    msrun = launcher.start_msrun(run, claim_port("127.0.0.1", 0))
    launcher.wait_until(lambda: {0, 1} <= loading())
    msrun.kill()
    msrun.wait()
    try:
        # the scheduler stays for 10 s
        launcher.wait_for_nobody(run, seconds=90)
    finally:
        launcher.end_tails()
    assert not RunFolder(run).updates()


@pytest.mark.slow
@pytest.mark.release
def test_a_taken_port_is_shown_on_the_screen(launcher, tmp_path):
    """Not after the ten minutes that MindSpore's workers wait for a scheduler."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        began = time.monotonic()
        msrun = launcher.start_msrun(tmp_path / "run", port)
        assert msrun.wait(timeout=120) == 1
    assert time.monotonic() - began < 60
    assert (
        f"train: error: master port {port} at 127.0.0.1 cannot be used"
        in Path("msrun.txt").read_text()
    )
    assert f"process {os.getpid()}" in Path("logs/worker_0.log").read_text()
    launcher.wait_for_nobody(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.release
def test_no_scheduler_stays_if_msrun_cannot_start(launcher, start_msrun, tmp_path):
    """msrun fails after it has started the scheduler, which used the port for 600 s."""
    port = claim_port("127.0.0.1", 0)
    words = ["python", "-m", "resnet_fn.train", "--out-dir", str(tmp_path / "run")]
    msrun = start_msrun(2, "--local_worker_num", "8", "--master_port", str(port), *words)
    assert msrun.wait(timeout=60) == 1
    assert "exceeded local worker number: 8" in Path("msrun.txt").read_text()
    assert launcher.processes(tmp_path / "run")
    launcher.wait_for_nobody(tmp_path / "run", seconds=120)
    launcher.wait_until(lambda: is_free(port))
    assert "--local_worker_num" in Path("logs/scheduler.log").read_text()


@pytest.mark.slow
@pytest.mark.release
def test_a_failed_worker_ends_a_background_job(launcher, tmp_path):
    """Without --join True, msrun does not end the other worker."""
    run = tmp_path / "run"
    port = claim_port("127.0.0.1", 0)
    msrun = launcher.start_msrun(run, port, FAULTY, "error-after-update", "1", join=False)
    assert msrun.wait(timeout=60) == 0
    launcher.wait_until(lambda: "Input/output" in Path("logs/worker_1.log").read_text(), 200)
    launcher.wait_for_nobody(run, seconds=60)
    logs = [Path(f"logs/worker_{rank}.log").read_text() for rank in range(2)]
    assert "background  msrun has returned" in logs[0]
    assert "worker 1 has failed" in logs[0]


def is_free(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
