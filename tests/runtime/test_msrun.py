"""Ports, and msrun's processes as the launcher's own: exit codes, signals, nobody left."""

import socket
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


@pytest.fixture
def launch(tmp_path, python, processes):
    """launch(text, code) runs Python text on three workers, which must end with this code and leave nobody."""

    def run(text, code=0):
        command = ["-m", "resnet_fn.launch", "--workers", "3", "--log-dir", "logs", "--", "python", "-c", text]
        done = python(*command, tmp_path, code=code)
        assert not processes(tmp_path)
        return done

    return run


ROLE = "import os, sys, time; rank = os.environ['RANK_ID'] if os.environ['MS_ROLE'] == 'MS_WORKER' else 'none'\n"


def test_the_first_that_fails_gives_the_exit_code_and_ends_the_others(launch):
    began = time.monotonic()
    done = launch(f"{ROLE}if rank == '2': print('about to fail', flush=True); sys.exit(7)\ntime.sleep(60)", 7)
    assert time.monotonic() - began < 20
    assert done.stderr.startswith("launch: worker 2 ended with exit code 7; its log ends:\nabout to fail\n")


def test_all_is_well_when_all_workers_are_and_orphans_are_ended(launch):
    """Rank 0's output is shown; a process that a worker left behind in a session of its own is killed."""
    words = "[sys.executable, '-c', 'import time; time.sleep(61)', sys.argv[1]]"
    orphan = f"subprocess.Popen({words}, start_new_session=True)"
    done = launch(f"{ROLE}import subprocess\nprint('I am', rank)\nif rank == '1': {orphan}")
    assert (done.stdout, done.stderr) == ("I am 0\n", "")
    assert [Path(f"logs/worker_{rank}.log").read_text() for rank in range(3)] == [f"I am {r}\n" for r in range(3)]


def test_an_msrun_that_fails_is_quoted(python):
    where = ["--nnodes", "2", "--node-rank", "1", "--master-addr", "nowhere.invalid", "--master-port", "8118"]
    done = python("-m", "resnet_fn.launch", *where, code=1)
    assert done.stderr.startswith(
        "launch: error: msrun ended with exit code 1: RuntimeError: DNS resolution has failed."
    )
    assert len(done.stderr.splitlines()) == 1
