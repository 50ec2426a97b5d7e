"""The evaluate command: what it refuses."""

import json
import subprocess
import sys
from pathlib import Path

import mindspore
import pytest

from resnet_fn import create_model
from resnet_fn.config import cli
from resnet_fn.evaluate import main


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--which", "bset"], "--which: 'bset' is unknown; use one of last, best"),
        (["--batch-size", "0"], "--batch-size: 0 is too small; give 1 or more"),
    ],
)
def test_wrong_usage_is_said_before_any_work(arguments, message):
    with pytest.raises(cli.UsageError) as caught:
        main(["--checkpoint", "nowhere", *arguments])
    assert str(caught.value).startswith(message)


def test_all_wrong_values_are_told_at_once():
    with pytest.raises(cli.UsageError) as caught:
        main(["run", "--threads", "two", "--which", "bets", "--batch-size", "1.5", "--jsn", "x"])
    assert str(caught.value) == (
        "unknown argument '--jsn'; did you mean --json?; --threads: 'two' is not a whole number; "
        "--which: 'bets' is unknown; use one of last, best; --batch-size: '1.5' is not a whole number"
    )


def test_a_weight_file_is_scored_with_the_check_of_files_of_the_recipe_file(device, folder):
    net = create_model("resnet8", num_classes=3)
    mindspore.save_checkpoint(net, "net.ckpt")
    settings = {"dataset": "imagefolder", "model": "resnet8", "image_size": 8, "eval_resize": 8}
    bad = folder / "val" / "bee" / "00 ü.JPEG"
    bad.write_bytes(bad.read_bytes()[:300])
    for check, message in (("auto", "1 of 9 validation files are bad"), ("no", "00 ü.JPEG: cannot be decoded")):
        Path("mine.json").write_text(json.dumps({**settings, "data_dir": str(folder), "check_files": check}))
        with pytest.raises(ValueError, match=message):
            main(["--weights", "net.ckpt", "--recipe", "mine.json"])
    assert sorted(path.name for path in folder.iterdir()) == ["train", "val"]  # nothing beside the data
