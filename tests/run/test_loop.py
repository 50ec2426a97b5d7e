"""The training loop: any number of workers and micro-batches gives the same updates."""

import csv
import importlib
import json
import os
import shlex
import statistics
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

FREE = shlex.split("--model resnet8 --norm none --batch-size 240 --epochs 2 --image-size 8")
PHOTOGRAPHS = shlex.split(
    "--dataset imagefolder --image-size 16 --model resnet8 --batch-size 8 "
    "--epochs 2 --max-shift 0 --max-rotation 0 --max-zoom 0 --flip --mixup 0.2 "
    "--ema 0.8 --on-bad-sample skip --no-progress --out-dir run --eval-batch-size 4"
)
FINETUNE = {
    "freeze": "stem,layer1",
    "head_lr_factor": 5e-11,
    "layer_decay": 0.75,
    "ema": 0.9,
    "monitor": "macro_f1",
    "patience": 2,
    "drop_path": 0.2,
    "dropout": 0.2,
    "sampling": "balanced",
}
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
    words = (
        "--freeze stem,layer1 --layer-decay 0.75 --drop-path 0.3 --learning-rate 0.05 "
        "--head-lr-factor 2 --dropout 0.2 "
        "--class-weights weights.txt --sampling balanced"
    )
    Path("weights.txt").write_text(
        "".join(f"{label} {2 if label == 0 else 1}\n" for label in range(10))
    )
    flags = [*FREE, *words.split()]
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
    assert set(scores) == {"event", "update", "epoch", "loss", "map", "count", "macro_f1"}
    # every bit
    assert evaluate("two") == {name: scores[name] for name in ("loss", "map", "count", "macro_f1")}


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
    assert (
        scores["map"] == result.best["map"] == np.mean(list(scores["average_precision"].values()))
    )
    assert list(scores["average_precision"]) == ["blue", "green", "red"]
    report = json.loads(Path("report/report.json").read_text())
    assert {row["name"]: row["average_precision"] for row in report["classes"]} == scores[
        "average_precision"
    ]
    rows = list(csv.DictReader(Path("report/predictions.csv").read_text().splitlines()))
    lines = Path("val.csv").read_text().splitlines()[1:]
    assert [{*row["label"].split(";")} for row in rows] == [
        {*line.partition(",")[2].split(";")} for line in lines
    ]
    capsys.readouterr()
    main("predict", "run", "set", "--which", "best", "--json", "--threshold", "0.3")
    predictions = {
        row["file"]: row["top"] for row in map(json.loads, capsys.readouterr().out.splitlines())
    }
    for row in rows:
        likely = [
            (row[f"class{k}"], row[f"probability{k}"])
            for k in (1, 2, 3)
            if float(row[f"probability{k}"]) >= 0.3
        ]
        assert [
            (top["class"], f"{top['probability']:.6g}") for top in predictions[f"set/{row['name']}"]
        ] == likely
    assert {len(top) for top in predictions.values()} >= {1, 2}
    for flags, message in (
        (
            ["--top", "3"],
            "--top: this net predicts any number of classes; give --threshold instead",
        ),
        (["--sort", "doubt"], "--sort doubt needs a net that predicts one class; leave it out"),
        (["--threshold", "1.5"], "--threshold: 1.5 is not between 0 and 1; give 0.5"),
    ):
        with pytest.raises(UsageError, match=f"^{message}$"):
            main("predict", "run", "set/val0.bmp", *flags)


def main(command, *arguments):
    assert importlib.import_module(f"resnet_fn.{command}").main(arguments) == 0


@pytest.mark.slow
def test_patience_counts_across_a_resume(device, events, cut_after, last_state, capsys):
    """Fine-tuning at a rate of almost nothing: only the statistics move, and two evaluations
    without a gain come.
    """
    recipe = Recipe(
        name="digits",
        model="resnet8",
        image_size=8,
        batch_size=240,
        epochs=6,
        learning_rate=1e-12,
        **FINETUNE,
    )
    options = RunOptions(out_dir="run", progress=False, keep_last=9)
    result = train(recipe, options)
    assert 10 < result.updates < 30
    assert "early stop: macro_f1 has not improved for 2 evaluations" in capsys.readouterr().out
    state, arrays = last_state("run")
    cut_after("run", 5)
    again = train(recipe, options)
    assert "resuming after update 5 " in capsys.readouterr().out
    assert (again.updates, again.best) == (result.updates, result.best)
    assert [row["update"] for row in again.history["train"]] == [*range(1, result.updates + 1)]
    assert again.history["eval"] == events("run", "eval")
    assert again.history["eval"][-1] == again.last
    assert last_state("run") == (state, arrays)
    assert state["without_gain"] == 2
    counts = [row["training_images"] for row in state["class_balance"]]
    assert counts == np.bincount(load_digits().train.labels).tolist()
    train(recipe, options)
    assert f"complete: the run ended after update {result.updates}" in capsys.readouterr().out
    kept = load_checkpoint(Path("run/checkpoints/step-00000005")).weights
    frozen = [name for name in kept if name.startswith(("conv1", "bn1", "layer1"))]
    assert len(frozen) == 15
    assert all(kept[name].tobytes() == arrays[name] for name in frozen)


@pytest.mark.slow
@pytest.mark.release
def test_all_workers_keep_the_same_bits(msrun):
    """With BatchNorm: every rank holds the same state after each update, moving statistics
    included.
    """
    msrun(2, str(Path(__file__).parent / "drivers" / "hash_ranks.py"), os.getcwd())
    ranks = [json.loads(Path(f"rank{rank}.json").read_text()) for rank in range(2)]
    assert ranks[0]["workers"] == 2
    assert ranks[0]["state"] == ranks[1]["state"]
    # a byte of no UTF-8
    assert ranks[0]["heard"] == ranks[1]["heard"] == 9000 * "from rank 0: grüße \udcff"
    assert ranks[0]["numbers"] == ranks[1]["numbers"] == [2**24 + 1, 2**48 - 1, 7, 2**31 + 3]
    alone = MemoryFeed(load_digits(), Recipe(batch_size=60, image_size=8))
    for update in range(3):
        assert (
            ranks[0]["indices"][update] + ranks[1]["indices"][update]
            == alone.indices(update).tolist()
        )


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

    def logged(*flags: str) -> dict[int, list[dict[str, float]]]:
        python("-m", "resnet_fn.train", "--no-progress", "--out-dir", "run", *flags, seconds=600)
        epochs: dict[int, list[dict[str, float]]] = {}
        for event in events("run", "train"):
            epochs.setdefault(event["epoch"], []).append(event)
        return epochs

    return logged


@pytest.mark.slow
@pytest.mark.release
def test_memory_does_not_grow_over_twenty_epochs(folder, logged_updates):
    flags = shlex.split(
        "--model resnet8 --epochs 20 --dataset imagefolder --image-size 64 --batch-size 4 --flip"
    )
    epochs = logged_updates(*flags, "--data-dir", str(folder))
    memory = [epoch[-1]["memory_mb"] for epoch in epochs.values()]
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
    for epoch in logged_updates(
        "--model", "resnet20", "--epochs", "3", "--log-every", "1"
    ).values():
        seconds = sum(update["step_seconds"] for update in epoch)
        overheads.append(
            seconds / (len(epoch) * statistics.median(update["step_seconds"] for update in epoch))
        )
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
