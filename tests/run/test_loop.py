"""The training loop: any number of workers and micro-batches gives the same updates."""

import csv
import importlib
import itertools
import json
import os
import shlex
import statistics
from operator import itemgetter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from resnet_fn.checkpoint.folder import load_checkpoint
from resnet_fn.config.cli import UsageError
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.feed import MemoryFeed
from resnet_fn.data.sources.bundled import load_digits
from resnet_fn.evaluation.evaluate import evaluate
from resnet_fn.run.loop import train

PHOTOGRAPHS = shlex.split(
    "--dataset imagefolder --image-size 16 --model resnet8 --batch-size 8 "
    "--epochs 2 --max-shift 0 --max-rotation 0 --max-zoom 0 --flip --mixup 0.2 "
    "--ema 0.8 --on-bad-sample skip --no-progress --out-dir run --eval-batch-size 4"
)
# MB: what the allocator holds back one epoch and gives away in another; a run has about 900
NOISE = 24.0


@pytest.fixture
def compare_runs(events):
    """compare_runs(one, many): the same samples, losses, norms and weights, but for float
    rounding.
    """

    def compare(one, many):
        for a, b in zip(events(one, "train"), events(many, "train"), strict=True):
            # One update differs by rounding alone; from then on each starts where the rounding of
            # those before led.
            tolerance = 1e-5 if a["update"] == 1 else 5e-3
            for field in ("loss", "grad_norm", "accuracy"):
                assert b[field] == pytest.approx(a[field], rel=tolerance), (field, a["update"])
        a, b = (load_checkpoint(Path(run, "checkpoints/step-00000010")) for run in (one, many))
        for name, values in a.weights.items():
            assert np.linalg.norm(values - b.weights[name]) <= 1e-3 * np.linalg.norm(values), name

    return compare


@pytest.mark.slow
def test_workers_and_micro_batches_compute_the_same_numbers(msrun, python, compare_runs):
    """1 worker = 2 workers with 3 micro-batches each = 4 workers, on a net without BatchNorm.

    With frozen parts, rates by layer, what is left out at random, class weights, balanced sampling.
    """
    flags = shlex.split(
        "--model resnet8 --norm none --batch-size 240 --epochs 2 --image-size 8 "
        "--freeze stem,layer1 --layer-decay 0.75 --drop-path 0.3 --learning-rate 0.05 "
        "--head-lr-factor 2 --dropout 0.2 --class-weights weights.txt --sampling balanced"
    )
    weights = ["0 2", *(f"{label} 1" for label in range(1, 10))]
    Path("weights.txt").write_text("\n".join(weights))
    uncompiled = (*flags, "--mode", "pynative")  # the second of the three is compiled
    one = python("-m", "resnet_fn.train", *uncompiled, "--out-dir", "one", seconds=300)
    assert (
        "images      0 143 of weight 1.82, seen 1 times; 1 146 of weight 0.909, seen 0.984 times"
        in one.stdout
    )
    msrun(2, "-m", "resnet_fn.train", *flags, "--out-dir", "two", "--accumulate", "3")
    compare_runs("one", "two")
    log = msrun(4, "-m", "resnet_fn.train", *uncompiled, "--out-dir", "four")
    assert "4 workers" in log
    lines = Path("logs/worker_3.log").read_text().splitlines()
    assert all("[INFO]" in line for line in lines)  # rank 0 alone speaks
    compare_runs("one", "four")


SEVERAL = {
    "dataset": "imagefolder",
    "multi_label": True,
    "loss": "bce",
    "label_smoothing": 0.0,
    "monitor": "map",
    "model": "resnet8",
    "image_size": 8,
    "batch_size": 12,
    "epochs": 2,
    "learning_rate": 0.05,
    "flip": True,
}


def write_lists(train, val):
    """Pictures of one colour, which every crop leaves as they are, and lists that say which of
    three are in it.
    """
    rng = np.random.default_rng(0)
    colours = ("red", "green", "blue")
    Path("set").mkdir()
    for name, count in (("train", train), ("val", val)):
        lines = ["path,labels"]
        for k in range(count):
            colour = rng.integers(0, 256, 3)
            Image.new("RGB", (9, 9), tuple(colour.tolist())).save(f"set/{name}{k}.bmp")
            there = [colours[channel] for channel in range(3) if colour[channel] > 127]
            lines.append(f"{name}{k}.bmp,{';'.join(there)}")
        Path(f"{name}.csv").write_text("\n".join(lines) + "\n")
    return {"data_dir": "set", "train_list": "train.csv", "val_list": "val.csv", "progress": False}


@pytest.mark.slow
@pytest.mark.release
def test_multi_label_workers_compute_the_same(
    msrun, python, compare_runs, events, device, write_recipe
):
    options = write_lists(60, 150)
    settings = {**SEVERAL, **options, "norm": "none", "mixup": 0.2}
    train_command = ["-m", "resnet_fn.train", "--recipe", write_recipe(settings)]
    assert "classes     " in python(*train_command, "--out-dir", "one", seconds=300).stdout
    msrun(2, *train_command, "--out-dir", "two")
    compare_runs("one", "two")
    scores = events("two", "eval")[-1]
    metrics = ("loss", "map", "count", "macro_f1")
    assert set(scores) == {"event", "update", "epoch", *metrics}
    assert evaluate("two") == {name: scores[name] for name in metrics}  # every bit


@pytest.mark.slow
def test_multi_label_works_from_lists_to_predictions(device, events, cut_after, last_state, capsys):
    recipe = Recipe(**{**SEVERAL, "epochs": 8})
    options = RunOptions(out_dir="run", checkpoint_every=10, keep_last=99, **write_lists(72, 40))
    result = train(recipe, options)
    assert result.last["map"] > 0.8  # a class's share alone would be 0.5
    assert result.best["map"] == max(event["map"] for event in events("run", "eval"))
    table = capsys.readouterr().out
    assert "val mAP" in table
    assert f" {result.last['map']:.2%} " in table
    # Interrupted in the middle of an epoch, a run goes on to the same bits.
    state, arrays = last_state("run")
    cut_after("run", 10)
    assert train(recipe, options).best == result.best
    assert "resuming after update 10 " in capsys.readouterr().out
    assert last_state("run") == (state, arrays)
    main("evaluate", "run", "--which", "best", "--json", "result.json", "--report", "report")
    scores = json.loads(Path("result.json").read_text())
    assert scores["map"] == result.best["map"]
    assert scores["map"] == np.mean(list(scores["average_precision"].values()))
    assert list(scores["average_precision"]) == ["blue", "green", "red"]
    classes = json.loads(Path("report/report.json").read_text())["classes"]
    precisions = {row["name"]: row["average_precision"] for row in classes}
    assert precisions == scores["average_precision"]
    rows = list(csv.DictReader(Path("report/predictions.csv").read_text().splitlines()))
    listed = csv.DictReader(Path("val.csv").read_text().splitlines())
    for row, expected in zip(rows, listed, strict=True):
        assert {*row["label"].split(";")} == {*expected["labels"].split(";")}
    capsys.readouterr()
    main("predict", "run", "set", "--which", "best", "--json", "--threshold", "0.3")
    counts = set()
    predictions = map(json.loads, capsys.readouterr().out.splitlines())
    tops = {prediction["file"]: prediction["top"] for prediction in predictions}
    for row in rows:
        top = tops[f"set/{row['name']}"]
        counts.add(len(top))
        assert [float(row[f"probability{k}"]) >= 0.3 for k in (1, 2, 3)].count(True) == len(top)
        for k, likely in enumerate(top, 1):
            assert row[f"class{k}"] == likely["class"]
            assert row[f"probability{k}"] == f"{likely['probability']:.6g}"
    assert counts >= {1, 2}
    for flags, message in (
        ("--top 3", "--top: this net predicts any number of classes; give --threshold instead"),
        ("--sort doubt", "--sort doubt needs a net that predicts one class; leave it out"),
        ("--threshold 1.5", "--threshold: 1.5 is not between 0 and 1; give 0.5"),
    ):
        with pytest.raises(UsageError, match=f"^{message}$"):
            main("predict", "run", "set/val0.bmp", *flags.split())


def main(command, *arguments):
    assert importlib.import_module(f"resnet_fn.{command}").main(arguments) == 0


@pytest.mark.slow
@pytest.mark.release
def test_all_workers_keep_the_same_bits(msrun):
    """With BatchNorm: every rank holds the same state after each update, moving statistics
    included.
    """
    msrun(2, str(Path(__file__).parent / "drivers" / "hash_ranks.py"), os.getcwd())
    ranks = [json.loads(Path(f"rank{rank}.json").read_text()) for rank in range(2)]
    assert ranks[0]["state"] == ranks[1]["state"]
    for rank in ranks:
        assert rank["workers"] == 2
        assert rank["heard"] == 9000 * "from rank 0: grüße \udcff"  # a byte of no UTF-8
        assert rank["numbers"] == [2**24 + 1, 2**48 - 1, 7, 2**31 + 3]
    alone = MemoryFeed(load_digits(), Recipe(batch_size=60, image_size=8))
    for update in range(3):
        first, second = (rank["indices"][update] for rank in ranks)
        assert first + second == alone.indices(update).tolist()


@pytest.mark.slow
@pytest.mark.release
def test_two_workers_skip_alike_and_score_each_file(folder, msrun, events):
    (folder / "train" / "bee" / "00 ü.JPEG").write_bytes(b"\xff\xd8 cut")
    (folder / "val" / "bee" / "01 ü.JPEG").write_bytes(b"")
    log = msrun(2, "-m", "resnet_fn.train", "--data-dir", str(folder), *PHOTOGRAPHS)
    assert "skipping 1 of 21 training files: " in log
    assert "00 ü.JPEG' is cut or damaged" in log
    scores = events("run", "eval")
    assert [event["count"] for event in scores] == [8, 8]
    assert len(events("run", "train")) == 2 * (20 // 8)
    alone = evaluate("run")
    assert alone == {name: scores[-1][name] for name in alone}  # every bit
    assert len(Path("run/bad_files.txt").read_text().splitlines()) == 2


@pytest.fixture
def logged_updates(python, events):
    """Train in a process of its own (another test's memory would blur it); the logged updates of
    each epoch.
    """

    def logged(*flags):
        python("-m", "resnet_fn.train", "--no-progress", "--out-dir", "run", *flags, seconds=600)
        epochs = itertools.groupby(events("run", "train"), key=itemgetter("epoch"))
        return [list(updates) for _, updates in epochs]

    return logged


@pytest.mark.slow
@pytest.mark.release
def test_memory_does_not_grow_over_twenty_epochs(folder, logged_updates):
    flags = shlex.split(
        "--model resnet8 --epochs 20 --dataset imagefolder --image-size 64 --batch-size 4 --flip"
    )
    epochs = logged_updates(*flags, "--data-dir", str(folder))
    memory = [epoch[-1]["memory_mb"] for epoch in epochs]
    assert len(memory) == 20
    assert max(memory[2:]) - memory[1] < NOISE, memory


@pytest.mark.slow
@pytest.mark.alone
def test_the_loop_never_waits_for_data(logged_updates):
    """A batch is prepared while the device computes, over an epoch's end too; only the run's first
    is waited for.

    The 22 updates of an epoch of digits take at most 1.05 x (updates x median step time):
    `step_seconds` reaches from the end of the update before to its own. The least of the epochs,
    since other processes share the machine.
    """
    # the step that a batch is prepared in: the update before its own; the run's first has none
    before = 0.0
    overheads = []
    waits = []
    preparations = []
    for epoch in logged_updates(*shlex.split("--model resnet20 --epochs 3 --log-every 1")):
        steps = [update["step_seconds"] for update in epoch]
        seconds = sum(steps)
        overheads.append(seconds / (len(epoch) * statistics.median(steps)))
        waited = prepared = 0.0
        for update in epoch:
            waited += max(0.0, update["data_seconds"] - before)
            prepared += update["data_seconds"] if before else 0.0
            before = update["step_seconds"]
        waits.append(waited / seconds)
        preparations.append(prepared / seconds)
    assert min(waits) <= 0.02, waits
    assert min(preparations) <= 0.1, preparations  # far from where the device would wait for it
    assert min(overheads[1:]) <= 1.05, overheads  # the first epoch compiles
