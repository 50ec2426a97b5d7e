"""Starting workers with msrun, and the exit codes that come back."""

import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import mindspore
import pytest

import resnet_fn
from resnet_fn.runtime.msrun import claim_port


def test_a_port_is_free_or_refused():
    port = claim_port("127.0.0.1", 0)
    assert claim_port("127.0.0.1", port) == port
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(ValueError, match="Address already in use"),
    ):
        claim_port("127.0.0.1", port)
    with pytest.raises(ValueError, match="Cannot assign requested address"):
        claim_port("192.0.2.1", 8118)


ORPHAN = """
import os, subprocess, sys
rank = os.environ["RANK_ID"] if os.environ["MS_ROLE"] == "MS_WORKER" else "none"
print("I am", rank)
if rank == "1":
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(61)", sys.argv[1]], start_new_session=True)
"""


def test_success_needs_all_workers_and_ends_orphans(tmp_path, python, processes):
    """Rank 0's output is shown; a process that a worker left behind in a session of its own is
    killed.
    """
    words = ("--workers", "3", "--log-dir", "logs", "--", "python", "-c", ORPHAN, tmp_path)
    done = python("-m", "resnet_fn.launch", *words)
    assert not processes(tmp_path)
    assert (done.stdout, done.stderr) == ("I am 0\n", "")
    assert [Path(f"logs/worker_{rank}.log").read_text() for rank in range(3)] == [
        f"I am {r}\n" for r in range(3)
    ]


def test_files_in_the_folder_hide_no_python_module(python):
    """Of Python's own modules, from msrun."""
    Path("ast.py").write_text("raise SystemExit('mine')")
    words = ("--workers", "1", "--", "python", "-P", "-c", "print('well')")
    assert python("-P", "-m", "resnet_fn.launch", *words).stdout == "well\n"


def test_the_launcher_needs_no_python_on_path(tmp_path):
    """As where only python3.11 is installed, and called by its path."""
    python = tmp_path / "bin" / "python3.11"
    python.parent.mkdir()
    python.symlink_to(os.path.realpath(sys.executable))
    places = [str(Path(module.__file__).parents[1]) for module in (resnet_fn, mindspore)]
    environment = {**os.environ, "PATH": "nowhere", "PYTHONPATH": os.pathsep.join(places)}
    words = ["-m", "resnet_fn.launch", "--workers", "2", "--", "python", "-c"]
    code = "import sys; print(sys.executable)"
    done = subprocess.run(
        [python, *words, code], env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr, done.returncode) == (f"{python}\n", "", 0)


def test_an_msrun_that_fails_is_quoted(python, says):
    where = shlex.split("--nnodes 2 --node-rank 1 --master-addr nowhere.invalid --master-port 8118")
    done = python("-m", "resnet_fn.launch", *where, code=1)
    says(
        done.stderr,
        "launch: error: msrun ended with exit code 1: RuntimeError: DNS resolution has failed.",
    )
