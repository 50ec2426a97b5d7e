"""Workers that do not agree on what they compute end alike, before the first update, with what
differs in one line; those that agree compute what one computes.
"""

import importlib
import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

import resnet_fn
from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.run.loop import train
from resnet_fn.runtime.versions import at_least

pytestmark = pytest.mark.slow

DRIVERS = Path(__file__).parent / "drivers"
RECIPE = {"model": "resnet8", "image_size": 8, "batch_size": 240, "epochs": 1}
FILES = {
    "dataset": "imagefolder",
    "model": "resnet8",
    "image_size": 8,
    "batch_size": 8,
    "epochs": 1,
}
FLAGS = shlex.split("--model resnet8 --image-size 8 --batch-size 240 --epochs 1 --no-progress")
HASH = "[0-9a-f]{12}"
SET = rf"\({HASH}\)"


def evaluation(*flags):
    """A case: an evaluation, of which rank 1 has other flags."""
    return [["resnet_fn.evaluate", *more] for more in flags]


def on_both(*words):
    """A case: what a driver of this name does."""
    return 2 * [[*words]]


def rank_1(recipe=None, options=None, base=RECIPE, **both):
    """A case: rank 1 has other settings of the recipe, or other options."""
    both = {"out_dir": "none", **both}
    return [[base, both], [{**base, **(recipe or {})}, {**both, **(options or {})}]]


@pytest.fixture
def compare_with_one(monkeypatch, events):
    """compare_with_one(run, log): own_net's run computed what one worker does; there is one report,
    or none where workers do not share the disk.
    """

    def compare(run, log):
        monkeypatch.syspath_prepend(DRIVERS)
        importlib.import_module("own_net").main(["one"])
        for kind in ("train", "eval"):
            one, two = ([event["loss"] for event in events(name, kind)] for name in ("one", run))
            assert two == pytest.approx(one, rel=1e-5)
        first, second = (
            json.loads(Path(name, "report/report.json").read_text()) for name in ("one", run)
        )
        assert first["top1"] == second["top1"]
        assert log.count("warning: no report of the run:") == 1
        assert Path("apart/metrics.jsonl").exists()
        assert not Path("apart/report").exists()

    return compare


@pytest.mark.usefixtures("device")
def test_differences_are_named_on_all_workers(folder, msrun, write_recipe, compare_with_one):
    """What may differ (paths, threads, how often is logged) trains on.

    A resume compares the restored state, too, and an evaluation what it scores: of a run, or of a
    bare weight file. First `fit`, as the first call of a script, on a net that computes what one
    worker computes; last a net whose state differs after an update.
    """
    for name, seed in (("a", 0), ("b", 1), ("resumed", 0)):
        options = RunOptions(out_dir=name, mode="pynative", progress=False, checkpoint_every=3)
        train(Recipe(**{**RECIPE, "seed": seed}), options)
    shutil.rmtree("resumed/checkpoints/step-00000005")
    options = RunOptions(out_dir="files", data_dir=str(folder), mode="pynative", progress=False)
    train(Recipe(**FILES), options)
    write_recipe(RECIPE)
    for copy in ("renamed", "fewer", "class", "validation"):
        shutil.copytree(folder, copy)
    Path("renamed/train/bee/00 ü.JPEG").rename("renamed/train/bee/0.JPEG")
    Path("fewer/train/bee/00 ü.JPEG").unlink()
    for half in ("train", "val"):
        Path("class", half, "bee").rename(Path("class", half, "wasp"))
    Path("validation/val/bee/00 ü.JPEG").rename("validation/val/bee/0.JPEG")
    Path("elsewhere").mkdir()
    Path("b").rename("elsewhere/resumed")
    shutil.copytree("elsewhere/resumed", "b")
    files = {"base": FILES, "data_dir": str(folder)}
    own = {"log_every": 7, "norms_every": 3, "checkpoint_every": 2}
    mode = {"mode": "pynative"}
    cases = {
        "own net": on_both("own_net", "two", "apart"),
        "learning_rate 0.05, rank 0: 0.2": rank_1({"learning_rate": 0.05}),
        "label_smoothing 0.2, rank 0: 0.1; rank 1: smoothing_over others, rank 0: all": rank_1(
            {"label_smoothing": 0.2, "smoothing_over": "others"}
        ),
        "accumulate 2, rank 0: 1": rank_1(options={"accumulate": 2}),
        "feed uint8, rank 0: float32": rank_1(options={"feed": "uint8"}, **files),
        "check_files no, rank 0: auto": rank_1(options={"check_files": "no"}, **files),
        "training files 20, rank 0: 21": rank_1(options={"data_dir": "fewer"}, **files),
        f"classes {HASH}, rank 0: {HASH}; rank 1: training images 21 .*; rank 1: validation images "
        "9 ": rank_1(options={"data_dir": "class"}, **files),
        f"training images 21 {SET}, rank 0: 21 {SET}; give": rank_1(
            options={"data_dir": "renamed"}, **files
        ),
        f"validation images 9 {SET}, rank 0: 9 {SET}; give": rank_1(
            options={"data_dir": "validation"}, **files
        ),
        f"weights and other state {HASH}, rank 0: {HASH}": [
            [{**RECIPE, "weights": name}, {"out_dir": "none"}] for name in ("a", "b")
        ],
        f"weights and other state {HASH}, rank 0: {HASH}; give": rank_1(
            options={"folder": "elsewhere"}, out_dir="resumed"
        ),
        "tta flip, rank 0: none;": evaluation(["files"], ["files", "--tta", "flip"]),
        f"validation images 9 {SET}, rank 0: 9 {SET};": evaluation(
            ["files"], ["files", "--data-dir", "validation"]
        ),
        f"weights and other state {HASH}, rank 0: {HASH}; give all workers the same weights": evaluation(
            *(["--recipe", "mine.toml", "--weights", name] for name in ("a", "b"))
        ),
    }
    if at_least(2, 9):  # an older MindSpore needs no limit
        kernels = (
            "ONEDNN_MAX_CPU_ISA not set, rank 0: AVX2; rank 1: convolutions products, rank 0: "
        )
        cases[f"{kernels}standard"] = on_both("other_kernels", "none")
    moving = (
        rf".*0\.moving_var after the first update {HASH}, rank 0: {HASH}; .*use nn\.BatchNorm2d"
    )
    cases |= {
        moving: on_both("moving_state", "moving"),
        "": [
            [RECIPE, {"out_dir": "trained", **mode}],
            [{**RECIPE, "name": "mine"}, {"out_dir": "", **own, **mode}],
        ],
    }
    Path("cases.json").write_text(json.dumps(cases))
    log = msrun(2, str(DRIVERS / "other_worker.py"), "cases.json")
    errors, others = (json.loads(Path(f"errors{rank}.json").read_text()) for rank in range(2))
    assert errors == others
    assert errors.pop("") == errors.pop("own net") == ""
    assert RunFolder(Path("trained")).updates() == [5]
    compare_with_one("two", log)
    assert re.match(f"rank 1: {moving}", errors.pop(moving))
    assert not list(Path("moving/checkpoints").glob("step-*"))
    for wanted, text in errors.items():
        assert re.match(f"rank 1: {wanted}", text), (wanted, text)
        assert re.search("; (give|start) all workers", text)
    assert not Path("none").exists()


@pytest.mark.release
def test_different_code_versions_or_kernels_end_both_workers(python):
    """One changed comment; what pip has recorded of NumPy; a variable that chooses CPU kernels."""
    shutil.copytree(
        Path(resnet_fn.__file__).parent,
        "other/resnet_fn",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    with open("other/resnet_fn/models/resnet.py", "a") as file:
        file.write("# mine\n")
    record = Path("other/numpy-1.25.9.dist-info/METADATA")
    record.parent.mkdir()
    record.write_text("Name: numpy\nVersion: 1.25.9\n")
    launch = shlex.split("-m resnet_fn.launch --workers 2 --log-dir logs -- python")
    words = (DRIVERS / "by_rank.py", Path("other").absolute(), *FLAGS, "--out-dir", "run")
    python(*launch, *words, code=1, seconds=300)
    logs = [Path(f"logs/worker_{rank}.log").read_text() for rank in range(2)]
    first, second = (
        line for log in logs for line in log.splitlines() if line.startswith("train: error: ")
    )
    assert first == second
    numpy = f"rank 1: numpy 1.25.9, rank 0: {np.__version__}"
    kernels = "rank 1: ONEDNN_DEFAULT_FPMATH_MODE BF16, rank 0: not set; start all workers"
    assert re.match(
        f"train: error: rank 1: resnet_fn's code {HASH}, rank 0: {HASH}; {numpy}; {kernels}", first
    ), first
    assert not Path("run").exists()
