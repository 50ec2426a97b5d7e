"""A terminal that closes or blocks does not end a run. (Under nohup: test_signals.)"""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from resnet_fn.checkpoint.run_folder import RunFolder

RECIPE = shlex.split("--model resnet8 --norm none --image-size 8 --batch-size 240 --epochs 1")
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
    assert RunFolder(Path("run")).updates() == [5]
    assert "error" not in done.stderr.lower()
    assert {path.name for path in Path("run").iterdir() if not path.name.startswith("events.")} == {
        "config.json",
        "recipe.toml",
        "metrics.jsonl",
        "checkpoints",
        "lock",
    }
