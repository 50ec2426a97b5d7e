"""The eleven checks, in the order in which they build on each other.

What is allowed is the same on a CPU and on a card: there float32 is computed in float32 (no HF32),
by kernels and collectives that repeat, unless a run asks for --fast-math; none does here.
"""

import importlib.util
import itertools
import json
import math
import statistics
import sys
from pathlib import Path

import pytest

from resnet_fn.checkpoint.folder import load_checkpoint
from resnet_fn.checkpoint.run_folder import RunFolder

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "scripts" / "benchmark"))
write_folder = importlib.import_module("photographs").write_folder
# with MindSpore's own convolutions on a CPU
GOLDEN = json.loads((HERE / "digits_losses.json").read_text())
DIGITS = "../golden/digits"  # the run of test_golden
SMALL = ("--model", "resnet8", "--image-size", "8", "--no-progress")
# the largest loss scale: 0.8 · 2^24 / 64 is beyond float16's 65,504, and so is half of it
TOP = 2.0**24


def apart(a, b):
    """|a − b| / |b|; infinity where one is not finite (null in metrics.jsonl)."""
    return math.inf if a is None or b is None else abs(a - b) / (abs(b) or 1.0)


def test_doctor(check):
    """MindSpore, device and disk do what training needs."""
    file = check.kit.out / "doctor.json"
    check.run("doctor", "--json", str(file), codes=(0, 1))
    if not file.exists():
        pytest.exit(check.last_error(), returncode=2)  # it did not start: a mistake, no finding
    result = json.loads(file.read_text())
    check.says(
        f"{len(result['findings']) - len(result['broken'])} of {len(result['findings'])} ok "
        "(doctor.json)"
    )
    assert not result["broken"], f"broken: {', '.join(result['broken'])}"


def test_ladder(check):
    """A net and five updates compute what PyTorch computes, by the trace of PyTorch beside this
    file; else ladder.json names where they part.
    """
    file = check.kit.out / "ladder.json"
    words = (
        "replay",
        str(HERE / "trace"),
        "--net",
        f"{HERE / 'small_net.py'}:build",
        "--json",
        str(file),
    )
    check.run("parity", *words, codes=(0, 1))
    assert file.exists(), check.last_error()
    result = json.loads(file.read_text())
    check.says(f"{len(result['stages'])} stages (ladder.json)")
    names = [result[key] for key in ("first_stage", "first_layer", "first_gradient")]
    assert result["agrees"], f"first that differ, of stages, layers, gradients: {names}"


def test_golden(check):
    """A whole training of the digits goes as it should: update 1 within 1e-4 of a CPU's losses, 2
    within 1e-3, each epoch's mean within 0.1, the mean of the last ten within 0.01; else accuracy
    is lost.

    1e-4 can be asked of the first update only: the net is chaotic at this learning rate
    (docs/ascend.md).
    """
    check.run("train", "--out-dir", "digits", "--no-progress")
    losses = [event["loss"] for event in check.events("digits")]
    seconds = [event["step_seconds"] for event in check.events("digits")]
    top1 = check.events("digits", "eval")[-1]["top1"]
    assert len(losses) == 440
    means = [statistics.mean(losses[start : start + 22]) for start in range(0, 440, 22)]
    differences = (
        abs(losses[0] - GOLDEN["first_updates"][0]),
        abs(losses[1] - GOLDEN["first_updates"][1]),
        max(
            abs(mean - expected)
            for mean, expected in zip(means, GOLDEN["epoch_means"], strict=True)
        ),
        abs(statistics.mean(means[10:]) - statistics.mean(GOLDEN["epoch_means"][10:])),
    )
    first, second, epoch, last = (f"{value:.1g}" for value in differences)
    check.says(
        f"update 1 is {first} off, update 2 {second}, an epoch's mean up to {epoch}, the last "
        f"ten's {last}; "
        f"top-1 {top1:.2%}",
        top1=top1,
        step_seconds=statistics.median(seconds),
        first_step_seconds=seconds[0],
    )
    assert all(
        value <= bound for value, bound in zip(differences, (1e-4, 1e-3, 0.1, 0.01), strict=True)
    ), differences
    assert top1 >= 0.978


@pytest.fixture
def digits(check):
    """The run of test_golden."""
    if not RunFolder(check.folder / DIGITS).updates():
        pytest.skip("there is no run of the digits to do it with")


def test_evaluation_repeats_the_trainings_metrics_exactly(check, digits):
    """Each image counts once, however it is scored: the same bits in batches of 77 and on several
    workers as in training, in batches of 256; else results depend on the machine.
    """
    expected = check.events(DIGITS, "eval")[-1]
    ways = {"batches of 77": ("--batch-size", "77")}
    if check.workers > 1:
        ways[f"{check.workers} workers"] = ()
    for way, words in ways.items():
        start = check.run if words else check.launch
        start("evaluate", DIGITS, "--json", "result.json", *words)
        result = json.loads((check.folder / "result.json").read_text())
        assert result == {name: expected[name] for name in result}, way
    assert result["count"] == 360
    check.says(f"loss {expected['loss']!r}: the same with {', '.join(ways)}")


def on_one_and_several(check, *words):
    """Two runs begin alike, in loss and gradient norm, and their losses stay so but for
    rounding.
    """
    if check.workers == 1:
        pytest.skip("--workers 1")
    words = (
        *SMALL,
        *words,
        "--batch-size",
        str(-(-240 // check.workers) * check.workers),
        "--epochs",
        "1",
    )
    check.run("train", *words, "--out-dir", "one")
    check.launch("train", *words, "--out-dir", "several")
    one = check.events("one")
    several = check.events("several")
    assert len(one) == len(several)
    first = max(apart(several[0][name], one[0][name]) for name in ("loss", "grad_norm"))
    worst = max(apart(a["loss"], b["loss"]) for a, b in zip(several, one, strict=True))
    check.says(f"update 1 is {first:.1g} off, the losses of all {len(one)} up to {worst:.1g}")
    assert first <= 1e-5
    assert worst <= 1e-2


def test_workers(check):
    """Several workers train what one trains: a net without BatchNorm, loss and gradient norm of
    update 1 within 1e-5, the next losses within 1e-2.
    """
    on_one_and_several(check, "--norm", "none")


def test_batchnorm(check):
    """--sync-batchnorm sees all workers' samples, within the same bounds; else leave it out."""
    on_one_and_several(check, "--sync-batchnorm")


def test_overflow(check):
    """--precision fp16 is safe: from the largest loss scale two updates are skipped at least, each
    skip halves the scale and changes no byte of the weights, and the first loss is within 2e-2 of
    float32's.
    """
    words = (
        "--precision",
        "fp16",
        "--loss-scale",
        f"{TOP:.0f}",
        "--epochs",
        "1",
        "--checkpoint-every",
        "1",
    )
    check.run("train", *words, "--keep-last", "99", "--out-dir", "half", "--no-progress")
    log = check.events("half")
    run = RunFolder(check.folder / "half")
    total = [event["skipped"] for event in log]
    skipped = [after > before for before, after in itertools.pairwise([0, *total])]
    scales = [event["loss_scale"] for event in log]
    check.says(
        f"{total[-1]} of {len(log)} skipped, the scale went from {scales[0]:,.0f} to "
        f"{scales[-1]:,.0f}"
    )
    saved = [load_checkpoint(run.checkpoint_path(update)).weights for update in run.updates()]
    weights = [{name: array.tobytes() for name, array in arrays.items()} for arrays in saved]
    moved = [before != after for before, after in itertools.pairwise(weights)]
    assert skipped[:2] == [True, True], "no overflow was noticed"
    assert not all(skipped), "every update was skipped"
    assert moved == [not skip for skip in skipped[1:]], (
        "a skipped update moved weights, or another did not"
    )
    assert (
        scales[1:]
        == [scale / 2 if skip else scale for scale, skip in zip(scales, skipped, strict=True)][:-1]
    )
    assert apart(log[0]["loss"], GOLDEN["first_updates"][0]) <= 2e-2


def test_resume(check):
    """A run that is killed (SIGKILL) and goes on ends with the unbroken run's bits; else kernels do
    not repeat.
    """
    words = (*SMALL, "--batch-size", "120", "--epochs", "4", "--checkpoint-every", "1")
    check.run("train", *words, "--out-dir", "unbroken")
    at = check.train_and_kill("killed", 3, *words)
    check.run("train", *words, "--out-dir", "killed")
    unbroken, killed = (RunFolder(check.folder / name).newest() for name in ("unbroken", "killed"))
    check.says(f"killed after update {at}, it ended after {killed.state['update']}")
    assert killed.state["update"] == unbroken.state["update"]
    for kind in ("weights", "training"):
        arrays = [
            {name: array.tobytes() for name, array in getattr(run, kind).items()}
            for run in (unbroken, killed)
        ]
        assert [
            name for name in arrays[0] | arrays[1] if arrays[0].get(name) != arrays[1].get(name)
        ] == []


def test_export(check, digits):
    """The file answers as the net does, within what the command allows; ONNX where
    resnet_fn[export] is installed.
    """
    for kind in ("mindir", "onnx"):
        if kind == "onnx" and not all(
            importlib.util.find_spec(name) for name in ("onnx", "onnxruntime")
        ):
            check.says("onnx not tried: resnet_fn[export] is not installed")
            continue
        # compares, and fails
        check.run("export", DIGITS, "--format", kind, "--out", f"digits.{kind}")
        verified = json.loads((check.folder / f"digits.{kind}.json").read_text())["verified"]
        check.says(
            f"{kind} {verified['largest_difference']:.1g} of {verified['tolerance']:.1g} allowed"
        )


# every kind of block, gate and convolution
FAMILIES = ("resnet18", "se_resnet50", "genet50", "resnext50_32x4d")


def test_each_family_trains_and_exports(check):
    """A net of each family with ImageNet's stem answers from its files, for any number of images,
    within the same bounds.
    """
    write_folder(check.folder / "photographs", 4)
    onnx = all(importlib.util.find_spec(name) for name in ("onnx", "onnxruntime"))
    for model in FAMILIES:
        words = [
            "--model",
            model,
            "--dataset",
            "imagefolder",
            "--data-dir",
            "photographs",
            "--image-size",
            "64",
        ]
        words += [
            "--batch-size",
            "2",
            "--epochs",
            "1",
            "--mode",
            "pynative",
            "--out-dir",
            model,
            "--no-progress",
        ]
        check.run("train", *words)
        apart = {}
        for kind in ("mindir", "onnx") if onnx else ("mindir",):
            # compares, and fails
            check.run("export", model, "--format", kind, "--out", f"net.{kind}")
            card = json.loads((check.folder / f"net.{kind}.json").read_text())
            apart[kind] = card["verified"]["largest_difference"]
        check.says(f"{model} {max(apart.values()):.1g} ({', '.join(apart)})")


def test_speed(check):
    """All updates of ResNet-50 on JPEGs of ImageNet's size are done, with finite losses; how fast
    is for a reader: waiting for data above 10 % means that decoding is the limit, so pack the
    images (docs/data.md).
    """
    batch, updates, precision = (8, 8, "fp32") if check.device == "CPU" else (64, 16, "fp16")
    write_folder(check.folder / "photographs", batch * updates)
    words = [
        "--recipe",
        "imagenet_resnet50_v1",
        "--data-dir",
        "photographs",
        "--batch-size",
        str(batch),
    ]
    words += [
        "--learning-rate",
        "0.01",
        "--epochs",
        "1",
        "--precision",
        precision,
        "--out-dir",
        "resnet50",
    ]
    check.run("train", *words, "--no-progress")
    log = check.events("resnet50")
    assert len(log) == updates
    assert all(event["loss"] is not None for event in log)
    late = log[3:]  # the first compile, and fill the queue of batches
    rate = batch / statistics.median(event["step_seconds"] for event in late)
    waiting = sum(event["data_seconds"] for event in late) / sum(
        event["step_seconds"] for event in late
    )
    check.says(
        f"{rate:.1f} images/s in {precision}, batch {batch}; {waiting:.0%} of the time waiting for "
        "data; "
        f"the first update took {log[0]['step_seconds']:.0f} s",
        images_per_second=rate,
        waiting_share=waiting,
    )
