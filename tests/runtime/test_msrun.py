"""Ports, and msrun's processes as the launcher's own: exit codes, signals, nobody left."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from resnet_fn.runtime.msrun import claim_port


def test_a_port_is_free_or_refused():
    port = claim_port("127.0.0.1", 0)
    assert claim_port("127.0.0.1", port) == port
    with socket.create_server(("127.0.0.1", port)), pytest.raises(OSError, match="Address already in use"):
        claim_port("127.0.0.1", port)
    with pytest.raises(OSError, match="Cannot assign requested address"):
        claim_port("192.0.2.1", 8118)


def launch(tmp_path, code):
    """Run Python code on three workers; returns what came of it, and the seconds that it took."""
    command = [sys.executable, "-m", "resnet_fn.launch", "--workers", "3", "--log-dir", "logs", "--", "python", "-c"]
    began = time.monotonic()
    done = subprocess.run([*command, code, str(tmp_path)], capture_output=True, text=True, timeout=120)
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path) in read(path)]
    assert not left
    return done, time.monotonic() - began


def read(path):
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


ROLE = "import os, sys, time; rank = os.environ['RANK_ID'] if os.environ['MS_ROLE'] == 'MS_WORKER' else 'none'\n"


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("sys.exit(7)", 7),
        pytest.param("os.abort()", 134, marks=pytest.mark.slow),
        pytest.param("os.kill(os.getpid(), 9)", 137, marks=pytest.mark.slow),
    ],
)
def test_the_first_that_fails_gives_the_exit_code_and_ends_the_others(how, code, tmp_path):
    text = f"{ROLE}if rank == '2': print('about to fail', flush=True); {how}\ntime.sleep(60)"
    done, seconds = launch(tmp_path, text)
    assert done.returncode == code
    name = {134: " (SIGABRT)", 137: " (SIGKILL)"}.get(code, "")
    assert done.stderr.startswith(f"launch: worker 2 ended with exit code {code}{name}; its log ends:\nabout to fail\n")
    assert seconds < 20


def test_all_is_well_when_all_workers_are_and_orphans_are_ended(tmp_path):
    """Rank 0's output is shown; a process that a worker left behind in a session of its own is killed."""
    words = "[sys.executable, '-c', 'import time; time.sleep(61)', sys.argv[1]]"
    orphan = f"subprocess.Popen({words}, start_new_session=True)"
    done, _ = launch(tmp_path, f"{ROLE}import subprocess\nprint('I am', rank)\nif rank == '1': {orphan}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "I am 0\n", "")
    assert [Path(f"logs/worker_{rank}.log").read_text() for rank in range(3)] == [f"I am {r}\n" for r in range(3)]


def test_an_msrun_that_fails_is_quoted():
    where = ["--nnodes", "2", "--node-rank", "1", "--master-addr", "nowhere.invalid", "--master-port", "8118"]
    done = subprocess.run(
        [sys.executable, "-m", "resnet_fn.launch", *where], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert done.stderr.startswith(
        "launch: error: msrun ended with exit code 1: RuntimeError: DNS resolution has failed."
    )
    assert len(done.stderr.splitlines()) == 1
