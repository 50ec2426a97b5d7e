"""scripts/launch.py with real workers: signals, deaths, ports, two machines; nobody is left behind."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.config import Recipe
from resnet_fn.data.pipeline import Shard, TrainData
from resnet_fn.data.sources import load_digits
from resnet_fn.run_folder import RunFolder

ROOT = Path(__file__).parents[2]
LAUNCH = ROOT / "scripts" / "launch.py"
FAULTY = str(Path(__file__).parent / "drivers" / "faulty_worker.py")
FLAGS = ["--model", "resnet8", "--norm", "none", "--image-size", "8", "--batch-size", "120", "--epochs", "2"]
RUN = [*FLAGS, "--checkpoint-every", "1", "--threads", "1", "--no-progress"]  # 11 updates an epoch
TRAIN = ["-m", "resnet_fn.train"]


def launch(folder, *words, options=()):
    """Start the launcher; the run's name is in every worker's command line, by which they can be found."""
    command = [sys.executable, str(LAUNCH), "--workers", "2", *options, "--", "python", *words]
    return subprocess.Popen(
        [*command, *RUN, "--out-dir", str(folder)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def processes(folder):
    """pid → command line of all processes of a run, the launcher's included."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in words:
            found[int(path.parent.name)] = words
    return found


def workers_of(folder):
    """The pids of the training processes themselves, the scheduler's too."""
    return [pid for pid, words in processes(folder).items() if "launch.py" not in words and "msrun" not in words]


def rank_of(pid):
    environment = dict(
        entry.split(b"=", 1) for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if b"=" in entry
    )
    return None if environment.get(b"MS_ROLE") != b"MS_WORKER" else int(environment[b"RANK_ID"])


def wait_for_update(folder, process, beyond=0):
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and process.poll() is None:
        if max(RunFolder(folder).updates(), default=0) > beyond:
            return
        time.sleep(0.01)
    raise AssertionError(process.communicate()[0])


def last_state(folder):
    last = RunFolder(folder).newest()
    arrays = {**last.weights, **last.training}
    return last.state["update"], {name: array.tobytes() for name, array in arrays.items()}


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    process = launch(folder, *TRAIN)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert "best top-1" in output
    assert not processes(folder)
    return last_state(folder)


def stop_before_the_first_update(run):
    """While it compiles: there is nothing to save, and nothing to wait for."""
    process = launch(run, *TRAIN)
    deadline = time.monotonic() + 200
    while not (run / "config.json").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    sent = time.monotonic()
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 143, output
    assert time.monotonic() - sent < 10
    assert RunFolder(run).updates() == []


def stop_in_evaluation(run):
    """Rank 1 alone gets a SIGTERM in the first epoch's evaluation: both leave it, with that epoch's checkpoint."""
    process = launch(run, FAULTY, "term-in-evaluation", "1")
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 143, output
    assert "SIGTERM: stopping after update 11; the same command goes on from there" in output
    assert RunFolder(run).newest().state["last"] is None


def stop_by_signal(run):
    process = launch(run, *TRAIN)
    wait_for_update(run, process, beyond=1)
    sent = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 143, output
    assert time.monotonic() - sent < 30
    stopped = RunFolder(run).newest().state["update"]
    assert f"SIGTERM: stopping after update {stopped}; the same command goes on from there" in output


def die_in_save(run):
    """Rank 0 dies half-way through the save of update 7."""
    process = launch(run, FAULTY, "die-in-save", "0")
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 128 + signal.SIGKILL, output
    assert "launch: worker 0 ended with exit code 137; its log ends:" in output
    assert "resuming after update" in output
    assert RunFolder(run).newest().state["update"] == 6


def nan_on_one_rank(run):
    """One NaN on rank 1 only, in update 8: both ranks stop before it is applied."""
    process = launch(run, FAULTY, "nan-batch", "1")
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 1, output
    indices = TrainData(load_digits(), Recipe(image_size=8, batch_size=120), Shard(1, 2)).indices(7)
    assert (
        f"train: error: update 8: loss or gradients are not finite on rank 1, samples {indices[5]}; the batch is kept "
        f"in {run}: not-finite-00000008-rank-1.npz; the update was not applied; "
        f"last good checkpoint: {run}/checkpoints/step-00000007; mend the data or lower the learning rate"
    ) in output
    kept = np.load(run / "not-finite-00000008-rank-1.npz")
    assert kept["indices"].tolist() == indices.tolist()
    assert np.argwhere(np.isnan(kept["images"])).tolist() == [[5, 0, 3, 3]]
    assert [path.name for path in run.glob("not-finite-*")] == ["not-finite-00000008-rank-1.npz"]
    assert max(RunFolder(run).updates()) == 7


def die_in_all_reduce(run):
    """Rank 1 dies while rank 0 waits for it."""
    process = launch(run, FAULTY, "die-in-step", "1")
    wait_for_end(run, rank=1)
    died = time.monotonic()
    output, _ = process.communicate(timeout=60)
    assert time.monotonic() - died < 10
    assert process.returncode == 128 + signal.SIGKILL, output
    assert "launch: worker 1 ended with exit code 137; its log ends:" in output


def kill_the_launcher(run):
    """Its workers go with it."""
    process = launch(run, *TRAIN)
    wait_for_update(run, process, beyond=7)
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 10
    while processes(run) and time.monotonic() < deadline:
        time.sleep(0.05)


@pytest.mark.slow
def test_two_workers_through_every_fault_and_on(unbroken, tmp_path):
    """One run of two workers, ended in seven ways, nobody left behind after any; then it ends as if unbroken."""
    run = tmp_path / "run"
    for fault in (
        stop_before_the_first_update,
        stop_by_signal,
        die_in_save,
        nan_on_one_rank,
        die_in_all_reduce,
        kill_the_launcher,
        stop_in_evaluation,
    ):
        fault(run)
        assert not processes(run), fault.__name__
    process = launch(run, *TRAIN)
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 0, output
    assert last_state(run) == unbroken
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["update"] for line in lines if line["event"] == "train"] == list(range(1, 23))


def wait_for_end(folder, rank):
    """Until the worker of a rank, once it is there, is gone."""
    deadline = time.monotonic() + 200
    seen = None
    while time.monotonic() < deadline:
        for pid in workers_of(folder) if seen is None else ():
            try:
                if rank_of(pid) == rank:
                    seen = pid
            except (OSError, KeyError):
                continue
        if seen is not None and seen not in processes(folder):
            return
        time.sleep(0.02)
    raise AssertionError("it never came, or never went")


def test_a_taken_port_is_named_at_once(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        began = time.monotonic()
        process = launch(tmp_path / "run", *TRAIN, options=["--master-port", str(port)])
        output, _ = process.communicate(timeout=60)
    assert time.monotonic() - began < 2
    assert process.returncode == 1
    assert output == (
        f"launch: error: master port {port} at 127.0.0.1 cannot be used (Address already in use); "
        "give another --master-port\n"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--workers", "0"], "--workers: 0 is too small; give 1 or more"),
        (["--workers", "3", "--nnodes", "2"], "--workers: 3 do not spread evenly over 2 machines"),
        (["--nnodes", "2", "--node-rank", "2"], "--node-rank: 2 is not in 0..1"),
        (["--nnodes", "2"], "--master-port: several machines must agree on one; give 8118"),
    ],
)
def test_wrong_usage_is_one_line(options, message):
    done = subprocess.run(
        [sys.executable, str(LAUNCH), *options, "--", "python"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (2, f"launch: error: {message}\n")


def test_a_worker_that_fails_gives_its_code_and_its_log():
    """Before anything is trained: a wrong flag on every worker."""
    done = subprocess.run(
        [sys.executable, str(LAUNCH), "--workers", "1", "--", "python", *TRAIN, "--bach-size", "3"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert "launch: worker 0 ended with exit code 2; its log ends:" in done.stderr
    assert "train: error: unknown argument '--bach-size'; did you mean --batch-size" in done.stderr


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


def launch_on(machines, run, logs):
    jobs = []
    for node, inside in enumerate(machines):
        words = [
            *("--workers", "2", "--nnodes", "2", "--node-rank", str(node)),
            *("--master-addr", "10.77.0.1", "--master-port", "8118", "--log-dir", str(logs / f"logs{node}")),
        ]
        command = [*inside, sys.executable, str(LAUNCH), *words, "--", "python", *TRAIN, *RUN, "--out-dir", str(run)]
        jobs.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    return jobs


@pytest.mark.slow
def test_two_machines(unbroken, two_machines, tmp_path):
    """A worker on each of two hosts that see each other over the network only; the numbers are one host's."""
    run = tmp_path / "run"

    # one machine dies: its launcher and all below it are killed, nobody says goodbye
    jobs = launch_on(two_machines, run, tmp_path)
    wait_for_update(run, jobs[0], beyond=1)
    jobs[1].kill()
    died = time.monotonic()
    output, _ = jobs[0].communicate(timeout=120)
    print(f"the other machine's job ended {time.monotonic() - died:.1f} s later with {jobs[0].returncode}")
    assert jobs[0].returncode not in (0, None), output
    jobs[1].communicate()
    assert not processes(run)

    jobs = launch_on(two_machines, run, tmp_path)
    outputs = [job.communicate(timeout=300)[0] for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], outputs
    assert "best top-1" in outputs[0]
    assert (tmp_path / "logs1" / "worker_1.log").exists()
    assert not processes(run)
    assert last_state(run) == unbroken
