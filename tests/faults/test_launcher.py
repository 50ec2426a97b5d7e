"""resnet_fn.launch with real workers: signals, deaths, ports; nobody is left behind.

(msrun alone: test_msrun; two machines: test_machines.)
"""

import os
import re
import shlex
import signal
import socket
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.feed import MemoryFeed
from resnet_fn.data.sources.bundled import load_digits
from resnet_fn.runtime.msrun import claim_port
from resnet_fn.runtime.workers import Workers

FAULTY = str(Path(__file__).parent / "drivers" / "faulty_worker.py")
COMPILED = ("--mode", "graph")


def stop_before_the_first_update(launcher, run):
    """While it compiles: there is nothing to save, and nothing to wait for."""
    process = launcher.start(run, more=COMPILED)
    launcher.wait_until((run / "config.json").exists, 200, process)
    sent = time.monotonic()
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 143, output
    assert time.monotonic() - sent < 30
    assert RunFolder(run).updates() == []


def stop_in_evaluation(launcher, run):
    """Rank 1 alone gets a SIGTERM in the first epoch's evaluation: both leave it, with that epoch's
    checkpoint.
    """
    output = launcher.finish(run, "python", FAULTY, "term-in-evaluation", "1", code=143)
    assert "SIGTERM: stopping after update 11" in output
    assert RunFolder(run).newest().state["last"] is None


def fail_in_evaluation(launcher, run, rank):
    """One rank's first evaluation fails: both end, with that epoch's checkpoint and one message."""
    output = launcher.finish(run, "python", FAULTY, "error-in-evaluation", rank, code=1)
    assert (
        f"train: error: evaluation after update 11: rank {rank}: disk: Input/output error; the "
        "checkpoint after update 11 is saved"
    ) in output
    assert RunFolder(run).newest().state["update"] == 11
    assert RunFolder(run).newest().state["last"] is None


def fail_in_batch(launcher, run):
    """Rank 1 alone has no memory for its batch of update 8: no rank applies it."""
    output = launcher.finish(run, "python", FAULTY, "error-in-batch", "1", code=1)
    assert (
        "train: error: update 8: rank 1: out of memory (no room); give smaller images or a smaller "
        "batch; the update was not applied; the checkpoint after update 7 is saved"
    ) in output
    assert max(RunFolder(run).updates()) == 7


def stop_by_signal(launcher, run, number, inside=()):
    """The line to go on with starts all workers, not one of them."""
    process = launcher.start(run, inside=inside)
    launcher.wait_for_update(run, process, max(RunFolder(run).updates(), default=1))
    sent = time.monotonic()
    process.send_signal(number)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number, output
    assert time.monotonic() - sent < 30
    stopped = RunFolder(run).newest().state["update"]
    assert f"{number.name}: stopping after update {stopped}" in output
    assert f"to go on:\n{shlex.join(process.args[len(inside) :])}\n" in output


def stop_by_ctrl_c(launcher, run):
    stop_by_signal(launcher, run, signal.SIGINT, inside=launcher.all_cpus)


def die_in_save(launcher, run):
    """Rank 0 dies half-way through the save of update 7."""
    output = launcher.finish(run, "python", FAULTY, "die-in-save", "0", code=128 + signal.SIGKILL)
    assert "launch: worker 0 ended with exit code 137 (SIGKILL); its log ends:" in output
    assert "resuming after update" in output
    assert RunFolder(run).newest().state["update"] == 6


def nan_on_one_rank(launcher, run):
    """One NaN on rank 1 only, in update 8: both ranks stop before it is applied."""
    output = launcher.finish(run, "python", FAULTY, "nan-batch", "1", code=1)
    indices = MemoryFeed(
        load_digits(), Recipe(image_size=8, batch_size=120), Workers(1, 2)
    ).indices(7)
    assert (
        "train: error: update 8: loss or gradients are not finite on rank 1, samples "
        f"{indices[5]}; the batch is kept "
        f"in {run}: not-finite-00000008-rank-1.npz; the update was not applied; "
        f"last good checkpoint: {run}/checkpoints/step-00000007; fix the data or lower the "
        "learning rate"
    ) in output
    kept = np.load(run / "not-finite-00000008-rank-1.npz")
    assert kept["indices"].tolist() == indices.tolist()
    assert kept["labels"].tolist() == load_digits().train.labels[indices].tolist()
    assert np.argwhere(np.isnan(kept["images"])).tolist() == [[5, 0, 3, 3]]
    assert [path.name for path in run.glob("not-finite-*")] == ["not-finite-00000008-rank-1.npz"]
    assert max(RunFolder(run).updates()) == 7


def die_in_all_reduce(launcher, run):
    """Rank 1 dies while rank 0 waits for it, in a compiled function; this update is not saved."""
    process = launcher.start(run, "python", FAULTY, "die-in-step", "1", more=COMPILED)
    pid = launcher.wait_until(lambda: launcher.worker(run, 1), 200)
    launcher.wait_until(lambda: pid not in launcher.processes(run), 200)
    died = time.monotonic()
    output, _ = process.communicate(timeout=60)
    assert time.monotonic() - died < 30
    assert process.returncode == 128 + signal.SIGKILL, output
    assert "launch: worker 1 ended with exit code 137 (SIGKILL); its log ends:" in output


def kill_the_launcher(launcher, run):
    """Its workers save, and end."""
    process = launcher.start(run, options=["--log-dir", "logs"])
    launcher.wait_for_update(run, process)
    process.kill()
    process.communicate()
    launcher.wait_for_nobody(run)
    assert "SIGTERM: stopping after update" in Path("logs/worker_0.log").read_text()


def kill_msrun(launcher, run, number):
    """msrun as README writes it, without the launcher: its workers save, and end."""
    msrun = launcher.start_msrun(run, claim_port("127.0.0.1", 0))
    launcher.wait_for_update(run, msrun)
    msrun.send_signal(number)
    assert msrun.wait() == -number
    launcher.wait_for_nobody(run)
    log = Path("logs/worker_0.log").read_text()
    assert f"SIGTERM: stopping after update {max(RunFolder(run).updates())}" in log
    launcher.end_tails()


# A death in a save at each line: test_damage.
FREQUENT = (
    partial(stop_by_signal, number=signal.SIGHUP),
    nan_on_one_rank,
    die_in_all_reduce,
    kill_the_launcher,
    partial(kill_msrun, number=signal.SIGTERM),
    partial(kill_msrun, number=signal.SIGKILL),
)
ALL = (
    stop_before_the_first_update,
    partial(stop_by_signal, number=signal.SIGHUP),  # its terminal is closed
    die_in_save,
    nan_on_one_rank,
    fail_in_batch,
    die_in_all_reduce,
    partial(fail_in_evaluation, rank="0"),
    partial(fail_in_evaluation, rank="1"),
    stop_in_evaluation,
    kill_the_launcher,
    stop_by_ctrl_c,  # of which a thread of NumPy's may get it
)


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(FREQUENT, id="frequent"),
        pytest.param(ALL, id="all", marks=pytest.mark.release),
    ],
)
def test_two_workers_resume_after_every_fault(
    launcher, unbroken_pair, events, tmp_path, last_state, faults
):
    """One run of two workers, ended in each way, nobody left behind after any; then it ends as if
    unbroken.
    """
    run = tmp_path / "run"
    for fault in faults:
        fault(launcher, run)
        assert not launcher.processes(run), fault
    launcher.finish(run)
    assert last_state(run)[1] == unbroken_pair
    assert [event["update"] for event in events(run, "train")] == list(range(1, 23))


def test_a_taken_port_is_named_at_once(launcher, tmp_path, says):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        began = time.monotonic()
        output = launcher.finish(tmp_path / "run", options=["--master-port", str(port)], code=1)
    assert time.monotonic() - began < 8
    says(
        output,
        f"launch: error: master port {port} at 127.0.0.1 cannot be used",
        f"process {os.getpid()}",
        "give another --master-port",
        f"kill {os.getpid()}",
    )


def test_an_earlier_jobs_scheduler_log_is_ignored(launcher, tmp_path):
    """On a machine without a scheduler, whose folder of logs held one before."""
    Path("logs").mkdir()
    Path("logs/scheduler.log").write_text("The node: 1 is timed out")
    options = shlex.split("--nnodes 2 --node-rank 1 --master-addr 192.0.2.1 --master-port 8118")
    output = launcher.finish(
        tmp_path / "run", "python", "-c", "", options=[*options, "--log-dir", "logs"]
    )
    assert "launch: no heartbeat" not in output


@pytest.mark.slow
def test_workers_end_after_their_launcher_was_killed(launcher, tmp_path):
    """The rank that could not save does not leave the other in an all-reduce for ten minutes."""
    run = tmp_path / "run"
    process = launcher.start(
        run, "python", FAULTY, "error-in-save", "0", options=["--log-dir", "logs"]
    )
    launcher.wait_for_update(run, process)
    process.kill()
    process.communicate()
    launcher.wait_for_nobody(run, seconds=120)
    logs = [Path(f"logs/worker_{rank}.log").read_text() for rank in range(2)]
    assert "train: error: " in logs[0]
    assert "worker 0 has failed" in logs[1]


STARTER = """
import os, signal, subprocess, sys
if sys.argv[1] == "with a child":
    nowhere = subprocess.DEVNULL
    print("child", subprocess.Popen(["sleep", "300"], stdout=nowhere, stderr=nowhere).pid, flush=True)
elif sys.argv[1] == "without SIGCHLD":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execvp(sys.argv[2], sys.argv[2:])
"""
DYING = """
import os, signal
from resnet_fn.runtime.console import typed_command
if os.environ["MS_ROLE"] == "MS_WORKER":
    print("typed:", *typed_command()[:6])
    print("[INFO] DISTRIBUTED(1,7f88,python):2026-01-02 [tcp_client.cc:367] Start] Event base", flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)
"""


@pytest.mark.parametrize("starter", ["with a child", "without SIGCHLD", "as PID 1"])
def test_the_launcher_leaves_inherited_processes_alone(launcher, request, tmp_path, starter):
    """As PID 1 it is in a container.

    A worker's death is named with its signal; a child that it inherited lives on.
    """
    inside = [sys.executable, "-c", STARTER, starter]
    if starter == "as PID 1":
        inside = request.getfixturevalue("as_process_1")
    command = ("python", "-c", DYING)
    code = 128 + signal.SIGSEGV
    output = launcher.finish(tmp_path / "run", *command, inside=inside, code=code, seconds=60)
    assert re.search(
        r"^launch: worker [01] ended with exit code 139 \(SIGSEGV\); its log ends:$", output, re.M
    )
    assert f"typed: {sys.executable} -m resnet_fn.launch --workers 2 --\n" in output
    assert "[INFO]" not in output
    if child := re.search(r"^child (\d+)$", output, re.M):
        os.kill(int(child[1]), signal.SIGTERM)  # a ProcessLookupError where it is gone


STANDING = """
import os, signal, subprocess
from resnet_fn.runtime import process
from resnet_fn.runtime.workers import barrier, join
process.start("CPU", 1)
workers = join()
barrier(workers)
if not workers.is_main:
    subprocess.Popen(["sh", "-c", f"sleep 18; kill -CONT {os.getpid()}"])
    os.kill(os.getpid(), signal.SIGSTOP)
barrier(workers)
"""


@pytest.mark.slow
@pytest.mark.release
def test_a_silent_worker_is_named_after_the_timeout(launcher, tmp_path):
    """For 18 s, while the other waits for it in an all-reduce; two jobs at once, of another
    patience each.
    """
    jobs = {}
    for patience in ("10", "40"):
        inside = ["env", f"MS_NODE_TIMEOUT={patience}"]
        jobs[patience] = launcher.start(
            tmp_path / patience, "python", "-c", STANDING, inside=inside
        )
    outputs = {patience: job.communicate(timeout=200)[0] for patience, job in jobs.items()}
    assert {patience: job.returncode for patience, job in jobs.items()} == {"10": 1, "40": 0}, (
        outputs
    )
    words = "launch: no heartbeat of worker 1 for 10 s: "
    assert [patience for patience, output in outputs.items() if words in output] == ["10"], outputs
    assert "a clock was set forward" in outputs["10"]
    assert not launcher.processes(tmp_path)


def test_a_pipe_that_closes_early_ends_nothing(launcher, tmp_path):
    """`… | head -1`: the job goes on to its own end, with its own exit code."""
    words = [
        "import sys, time",
        "print('first', flush=True)",
        "time.sleep(1)",
        "print('second', flush=True)",
    ]
    code = "; ".join([*words, "time.sleep(1)", "open(sys.argv[1] + '.end', 'w').close()"])
    process = launcher.start(tmp_path / "run", "python", "-c", code, str(tmp_path / "run"))
    assert process.stdout.readline() == "first\n"
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    assert (tmp_path / "run.end").exists()
    assert not launcher.processes(tmp_path / "run")
