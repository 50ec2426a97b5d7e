"""A terminal that closes or blocks does not end a run."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from resnet_fn.checkpoint.run_folder import RunFolder

RECIPE = shlex.split("--model resnet8 --norm none --image-size 8 --batch-size 240 --epochs 2")
TRAIN = [
    "-m",
    "resnet_fn.train",
    *RECIPE,
    "--threads",
    "1",
    "--mode",
    "pynative",
    "--out-dir",
    "run",
]


@pytest.mark.parametrize(
    "redirection",
    [
        "> /dev/full 2>&1",
        pytest.param("2>&1 | head -n 1", marks=pytest.mark.slow),
        pytest.param(">&- 2>&-", marks=pytest.mark.slow),
    ],
)
def test_a_full_or_closed_console_stops_nothing(redirection):
    command = f"{shlex.join([sys.executable, *TRAIN])} {redirection}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert RunFolder(Path("run")).updates() == [5, 10]
    assert "error" not in done.stderr.lower()
    assert {path.name for path in Path("run").iterdir() if not path.name.startswith("events.")} == {
        "config.json",
        "recipe.toml",
        "metrics.jsonl",
        "checkpoints",
        "lock",
    }


@pytest.mark.slow
def test_under_nohup_a_hangup_means_nothing(launcher):
    process = launcher.train(
        "--out-dir", "run", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    )
    launcher.wait_for_update(Path("run"), process, 1)
    os.kill(process.pid, signal.SIGHUP)
    output, _ = process.communicate(timeout=120)
    assert (process.returncode, max(RunFolder(Path("run")).updates())) == (0, 22), output
