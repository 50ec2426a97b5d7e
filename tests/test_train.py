"""The command `train`: its help, its flags, and the lines at the end."""

import os
from functools import partial
from pathlib import Path

import pytest

from resnet_fn.config.options import RunOptions
from resnet_fn.train import parse, resume_flags

SMALL = ["--model", "resnet8", "--batch-size", "240", "--epochs", "2"]  # 5 updates an epoch


@pytest.fixture
def train(python):
    return partial(python, "-m", "resnet_fn.train")


@pytest.mark.slow
def test_a_run_leaves_log_checkpoints_and_next_commands(train, events):
    done = train(*SMALL, "--out-dir", "run")
    assert "WARNING" not in done.stderr + done.stdout
    assert "update/s" not in done.stderr  # no bar without a terminal
    assert os.listdir() == ["run"]
    best, _, *then = done.stdout.splitlines()[-4:]
    assert best.startswith("best top-1 ")
    assert then == [  # each whole on a line, to be copied
        "python -m resnet_fn.evaluate run --which best --report run/report",
        "python -m resnet_fn.predict run IMAGE_OR_FOLDER --which best",
    ]
    updates = events("run", "train")
    evals = events("run", "eval")
    assert [event["update"] for event in updates] == list(range(1, 11))
    common = {"event", "update", "epoch", "loss"}
    numbers = "accuracy lr grad_norm loss_scale skipped images_per_second memory_mb"
    assert set(updates[0]) == {*common, *numbers.split(), "data_seconds", "step_seconds"}
    assert [event["update"] for event in evals] == [5, 10]
    assert set(evals[0]) == {*common, "top1", "top5", "macro_f1", "count"}
    assert updates[0]["lr"] == 0.2


@pytest.mark.parametrize(
    ("resume", "out_dir", "flags"),
    [
        ("auto", "run", ""),
        ("never", "run", "--resume auto"),
        ("auto", "", "--resume run"),
        ("run", "run", ""),
        ("run/checkpoints/step-00000005", "", "--resume run"),
        ("run/checkpoints/step-00000005", "run", "--resume run"),
    ],
)
def test_a_stopped_runs_command_is_given_the_run(resume, out_dir, flags):
    """Not the checkpoint from which it has gone on."""
    options = RunOptions(resume=resume, out_dir=out_dir)
    assert resume_flags(options, Path("run")) == flags.split()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["--out-dir", "file/below"],
            1,
            "out_dir: file/below cannot be written (Not a directory); give another",
        ),
        (["--batch-sise", "3"], 2, "unknown argument '--batch-sise'; did you mean --batch-size"),
        (["--device", "Ascend"], 1, "device: 'Ascend' is not available here"),
    ],
)
def test_mistakes_are_one_line(arguments, code, message, train):
    Path("file").touch()
    done = train(*arguments, code=code)
    assert done.stderr.startswith(f"train: error: {message}")
    assert done.stderr.count("\n") == 1
    assert os.listdir() == ["file"]


def test_debug_shows_the_traceback(train):
    done = train("--model", "resnet5", "--debug", code=1)
    assert "Traceback (most recent call last)" in done.stderr


def test_help_shows_meaning_unit_and_recipes_values(capsys):
    with pytest.raises(SystemExit):
        parse(["--recipe", "imagenet_resnet50_v1", "--help-all"])
    text = " ".join(capsys.readouterr().out.split())
    for part in (
        "recipe imagenet_resnet50_v1. A * marks values that",
        "--image-size N height and width",
        "[pixels]; default 224*; also --img-size",
        "Nesterov momentum (SGD); default False*",
        "default 30.0,60.0*",
    ):
        assert part in text
