"""Flags, one-line errors and exit codes that all commands share."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from resnet_fn.config import cli
from resnet_fn.config.options import RunOptions
from resnet_fn.config.path_hints import near_path
from resnet_fn.config.recipe import Recipe
from resnet_fn.train import parse


def test_flags_may_stand_between_positional_arguments():
    parser = cli.Parser("predict", "", "")
    parser.add_argument("images", nargs="+")
    parser.add_argument("--top", type=int)
    assert parser.parse(["run", "--top", "3", "a.png", "b.png"]).images == ["run", "a.png", "b.png"]


def test_a_pipe_that_closes_early_is_no_error():
    command = f"{sys.executable} -m resnet_fn.train --help | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(28, "No space left on device", "run/x"), "run/x: No space left on device"),
        (OSError("its own words"), "its own words"),
        (ValueError("--reference: no such file"), "--reference: no such file"),
        (ValueError("----\n- The kernel fails\n----"), "The kernel fails"),
        (MemoryError("need 191. GiB"), "out of memory (need 191. GiB); give smaller images"),
        (
            RuntimeError("can't start new thread"),
            "the system starts no more threads for this process; raise its limits",
        ),
        (
            ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn"),
            "torch is not installed; run pip install '.[torch]' in the folder of the clone",
        ),
        (KeyError("x"), "KeyError: 'x' (--debug shows the traceback)"),
    ],
)
def test_any_error_is_printed_with_exit_code_1(error, text, capsys):
    def main(_):
        raise error

    with pytest.raises(SystemExit) as ended:
        cli.run("train", main, [])
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith(f"train: error: {text}")


def test_help_lists_common_settings_and_help_all_everything(capsys):
    every = [
        name.replace("_", "-") for config in (Recipe, RunOptions) for name in config.declarations
    ]
    listed = {}
    for flag in ("--help", "--help-all"):
        with pytest.raises(SystemExit):
            parse([flag])
        text = capsys.readouterr().out
        assert "--help-all " in text
        listed[flag] = [
            name for name in re.findall(r"^  --([a-z\d-]+)", text, re.M) if name in every
        ]
    assert sorted(listed["--help-all"]) == sorted(name for name in every if name != "name")
    assert 30 <= len(listed["--help"]) <= 40
    first = "dataset data-dir model weights epochs batch-size learning-rate seed out-dir resume"
    assert " ".join(listed["--help"][:10]) == first
    assert (
        parse(["--policy-ops", "3", "--policy", "randaugment", "--dataset", "cifar10"])[
            0
        ].policy_ops
        == 3
    )
    assert parse(["--recipe", "finetune", "--no-check-files"])[1].check_files == "no"


def test_for_a_missing_path_the_nearest_is_suggested():
    Path("runs/first/checkpoints/step-00000066").mkdir(parents=True)
    Path("runs/frist/checkpoints").mkdir(parents=True)
    whole = "runs/firs/checkpoints/step-00000066"
    assert near_path(whole, "x") == "did you mean runs/first/checkpoints/step-00000066?"
    assert near_path("rums", "x") == "did you mean runs?"
    assert near_path("/quite/elsewhere", "give a folder") == "give a folder"


def test_a_tilde_as_a_recipes_name_stays():
    Path("~.toml").write_text("epochs = 3\n")
    assert parse(["--recipe", "./~.toml"])[0].name == "~"


def test_an_error_from_exec_becomes_one_line():
    with pytest.raises(ValueError) as caught:
        exec("raise ValueError('a\\nb')", {})
    assert cli.one_line(caught.value) == "a"


def test_a_tilde_is_the_home_folder(monkeypatch):
    """As in a shell, which leaves it in `--flag=~/x` and in quotes; but not if it is there."""
    monkeypatch.setenv("HOME", "/home/me")
    for words in (
        ["--out-dir=~/run", "--resume", "~/old"],
        ["--output", "~/run", "--resume=~/old"],
    ):
        options = parse(["--recipe", "digits", *words])[1]
        assert (options.out_dir, options.resume) == ("/home/me/run", "/home/me/old")
    Path("mine.toml").write_text('data_dir = "~/data"\ndataset = "cifar10"\n')
    assert parse(["--recipe", "mine.toml"])[1].data_dir == "/home/me/data"
    assert Recipe(weights="~/a.pth").weights == "/home/me/a.pth"
    parser = cli.Parser("predict", "", "")
    parser.add_argument("images", nargs="+")
    assert parser.parse(["~/a.png", "b~.png"]).images == ["/home/me/a.png", "b~.png"]
    Path("~/run").mkdir(parents=True)  # of an older version
    assert parse(["--out-dir=~/run"])[1].out_dir == "~/run"


def test_a_percent_sign_in_a_value_is_shown(monkeypatch, capsys):
    monkeypatch.setenv("RESNET_FN_FORM", "/opt/50%s/resnet_fn ")
    Path("mine.toml").write_text('weights = "100%s.pth"\n')
    with pytest.raises(SystemExit):
        parse(["--recipe", "mine.toml", "--help"])
    printed = capsys.readouterr().out
    assert "100%s.pth" in printed
    assert "usage: /opt/50%s/resnet_fn train" in printed
