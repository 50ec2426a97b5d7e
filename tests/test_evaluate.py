"""The evaluate command: what it refuses, before any work."""

import os
import subprocess
import sys
from pathlib import Path


def command(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
    )


def test_evaluate_mistakes():
    missing = command("resnet_fn.evaluate", "--checkpoint", "nowhere")
    assert (missing.returncode, missing.stderr) == (
        1,
        "evaluate: error: nowhere: does not exist; give a run folder\n",
    )
    Path("empty").mkdir()
    empty = command("resnet_fn.evaluate", "--checkpoint", "empty")
    assert empty.stderr.startswith("evaluate: error: empty: holds no checkpoint")
    bare = command("resnet_fn.evaluate")
    assert (bare.returncode, bare.stderr) == (
        2,
        "evaluate: error: give either RUN or --weights FILE --recipe NAME\n",
    )
