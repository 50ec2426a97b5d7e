"""The evaluate command: what it refuses."""

import subprocess
import sys
from pathlib import Path


def command(*arguments):
    return subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, timeout=300)


def test_evaluate_mistakes():
    missing = command("resnet_fn.evaluate", "--checkpoint", "nowhere")
    assert (missing.returncode, missing.stderr) == (
        1,
        "evaluate: error: nowhere: does not exist; give a run folder\n",
    )
    Path("empty").mkdir()
    empty = command("resnet_fn.evaluate", "--checkpoint", "empty")
    assert empty.stderr.startswith("evaluate: error: empty: holds no checkpoint")
    several = command("resnet_fn.evaluate", "run", "--batch-size", "0", "--image-size", "-1", "--stem", "d")
    assert (several.returncode, several.stderr) == (
        2,
        "evaluate: error: --batch-size: 0 is too small; give 1 or more; "
        "--image-size: -1 is negative; give pixels, or 0 for the recipe's own; "
        "--recipe, --model and --stem go with --weights; RUN knows its own\n",
    )
    bare = command("resnet_fn.evaluate")
    assert (bare.returncode, bare.stderr) == (
        2,
        "evaluate: error: give either RUN or --weights FILE --recipe NAME\n",
    )
