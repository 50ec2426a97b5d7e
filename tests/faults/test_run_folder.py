"""A run folder belongs to one run at a time."""

import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from resnet_fn.evaluation.evaluate import evaluate
from resnet_fn.train import main

LONG = ("--epochs", "200")


def stop(process):
    """SIGTERM; returns the line to go on with, and the last update."""
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 143, output
    updates = re.findall(r"^SIGTERM: stopping after update (\d+)$", output, re.M)
    lines = re.findall(r"^to go on:\n(.+)$", output, re.M)
    assert (len(updates), len(lines)) == (1, 1), output
    return lines[0], int(updates[0])


def files(folder):
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*")}


@pytest.mark.slow
def test_a_second_run_in_a_folder_is_rejected(launcher, lock, raises_line):
    """As long as the first lives: after its SIGKILL nothing is left that would lock the folder."""
    first = launcher.train(*LONG, "--out-dir", "run")
    launcher.wait_for_update(Path("run"), first, 1)
    first.send_signal(signal.SIGSTOP)
    before = files(Path("run"))
    words = first.args[3:-2]  # without python -m resnet_fn.train, and --out-dir run
    for flag in ("--out-dir", "--resume"):
        with raises_line(f"is in use by process {first.pid} on "):
            main([*words, "--threads", "0", flag, "run"])  # as many as this process has
        assert files(Path("run")) == before
    evaluate("run")
    assert files(Path("run")) == before
    first.kill()
    first.communicate()
    assert lock.take(Path("run"))


@pytest.mark.slow
def test_the_printed_line_resumes_without_out_dir(launcher, wait_until, tmp_path):
    """In a folder whose name a shell would take apart."""
    odd = tmp_path / "it's a folder"
    odd.mkdir()
    os.chdir(odd)
    process = launcher.train(*LONG, "--log-every", "2")
    first = wait_until(lambda: next(Path().glob("runs/*"), None), 120, process)
    launcher.wait_for_update(first, process, 1)
    line, update = stop(process)
    assert line == shlex.join([*process.args, "--resume", str(first)])
    again = subprocess.Popen(
        line, shell=True, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    launcher.wait_for_update(first, again, update)
    os.killpg(again.pid, signal.SIGKILL)
    assert f"resuming after update {update} from {first}/checkpoints/" in again.communicate()[0]
