"""The evaluate command: what it refuses."""

import json
import subprocess
import sys
from pathlib import Path

import mindspore

from resnet_fn import create_model
from resnet_fn.evaluate import main


def command(*arguments):
    return subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, timeout=300)


def test_evaluate_mistakes():
    missing = command("resnet_fn.evaluate", "--checkpoint", "nowhere")
    assert (missing.returncode, missing.stderr) == (1, "evaluate: error: nowhere: does not exist; give a run folder\n")
    Path("empty").mkdir()
    empty = command("resnet_fn.evaluate", "--checkpoint", "empty")
    assert empty.stderr.startswith("evaluate: error: empty: holds no checkpoint")
    bare = command("resnet_fn.evaluate")
    assert (bare.returncode, bare.stderr) == (2, "evaluate: error: give either RUN or --weights FILE --recipe NAME\n")


def test_a_weight_file_is_scored_with_the_scan_cache_of_the_recipe_file(device, folder):
    net = create_model("resnet8", num_classes=3)
    mindspore.save_checkpoint(net, "net.ckpt")
    settings = {"dataset": "imagefolder", "model": "resnet8", "image_size": 8, "eval_resize": 8}
    Path("mine.json").write_text(json.dumps({**settings, "data_dir": str(folder), "scan_cache": "kept"}))
    assert main(["--weights", "net.ckpt", "--recipe", "mine.json"]) == 0
    assert len(list(Path("kept").glob("scan-*.npz"))) == 1
    assert sorted(path.name for path in folder.iterdir()) == ["train", "val"]  # nothing beside the data
