"""Flags made from fields, the flags that choose a trained net; a mistake is one line, and an exit code."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from resnet_fn.config import cli
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.predict import main
from resnet_fn.train import parse


def parsed(*words):
    parser = cli.Parser("export", "", "")
    cli.add_checkpoint_flags(parser)
    parser.add_argument("--out")
    return parser.parse(words)


@pytest.mark.parametrize("words", [("run",), ("--checkpoint", "run"), ("--out", "x", "run"), ("run", "--out", "x")])
def test_a_run_stands_alone_or_after_its_flag(words):
    assert cli.chosen_checkpoint(parsed(*words)) == "run"


@pytest.mark.parametrize("words", [(), ("run", "--checkpoint", "other")])
def test_one_run_is_needed(words):
    with pytest.raises(cli.UsageError, match=r"^give either RUN or --checkpoint RUN: a run folder or a checkpoint"):
        cli.chosen_checkpoint(parsed(*words))


def test_predict_needs_an_image_beside_the_run():
    with pytest.raises(cli.UsageError, match=r"^no image is given beside 'run'; give RUN IMAGE_OR_FOLDER$"):
        main(["run"])


def test_flags_may_stand_between_what_has_no_flag():
    parser = cli.Parser("predict", "", "")
    parser.add_argument("images", nargs="+")
    parser.add_argument("--top", type=int)
    assert parser.parse(["run", "--top", "3", "a.png", "b.png"]).images == ["run", "a.png", "b.png"]


@pytest.mark.parametrize(
    ("flag", "instead"),
    [
        ("--amp", "--precision fp16"),
        ("--gpu", "--device CPU or --device Ascend"),
        ("--num-workers=4", "--data-threads N|python -m resnet_fn.launch --workers N"),
    ],
)
def test_flags_of_other_projects_lead_to_ours(flag, instead, says):
    parser = cli.Parser("train", "")
    cli.add_fields(parser, Recipe, RunOptions)
    with pytest.raises(cli.UsageError) as caught:
        parser.parse([flag])
    says(caught, flag.partition("=")[0], *instead.split("|"))
    with pytest.raises(cli.UsageError, match="there is no such flag"):  # nor --precision, --device or --data-threads
        cli.Parser("pack", "").parse([flag])


def test_a_reader_that_leaves_is_no_error():
    command = f"{sys.executable} -m resnet_fn.train --help | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_place_that_cannot_be_written_is_rejected_before_the_work(says):
    Path("file").touch()
    parser = cli.Parser("evaluate", "", "")
    parser.add_argument("--json", type=cli.file_to_write)
    parser.add_argument("--report", type=cli.folder_to_write)
    assert parser.parse(["--json", "new.json", "--report", "new/folder"]).json == "new.json"
    assert parser.parse(["--json", "file", "--report", "."]).report == "."
    for flag, place in (("--json", "none/new.json"), ("--json", "."), ("--report", "file/below")):
        with pytest.raises(cli.UsageError) as caught:
            parser.parse([flag, place])
        says(caught, f"{flag}: {place!r} cannot be written; give ")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(28, "No space left on device", "run/x"), "run/x: No space left on device"),
        (OSError("its own words"), "its own words"),
        (MemoryError("need 191. GiB"), "out of memory (need 191. GiB); give smaller images"),
        (KeyError("x"), "KeyError: 'x' (--debug shows the traceback)"),
    ],
)
def test_any_error_is_a_sentence_and_exit_code_1(error, text, capsys):
    def main(_):
        raise error

    with pytest.raises(SystemExit) as ended:
        cli.run("train", main, [])
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith(f"train: error: {text}")


def test_help_lists_the_settings_that_are_used_most_and_help_all_every_one(capsys):
    every = [name.replace("_", "-") for config in (Recipe, RunOptions) for name in config.__dataclass_fields__]
    listed = {}
    for flag in ("--help", "--help-all"):
        with pytest.raises(SystemExit):
            parse([flag])
        text = capsys.readouterr().out
        assert "--help-all " in text
        listed[flag] = [name for name in every if re.search(rf"^  --{name}[ ,]", text, re.M)]
    assert listed["--help-all"] == [name for name in every if name != "name"]
    assert 30 <= len(listed["--help"]) <= 40
    not_listed = ["--policy-ops", "3", "--policy", "randaugment", "--dataset", "cifar10"]
    assert parse(not_listed)[0].policy_ops == 3


def flags_of(config, *words):
    parser = cli.Parser("train", "", "", "")
    cli.add_fields(parser, config, skip=("name",))
    return cli.settings_in(parser.parse(words), config)


@pytest.mark.parametrize(
    ("config", "words", "given"),
    [
        (Recipe, "", {}),
        (Recipe, "--milestones 30,60.5 --no-nesterov", {"milestones": (30.0, 60.5), "nesterov": False}),
        (Recipe, "--lr 0.5 --epochs 3 --policy=", {"learning_rate": 0.5, "epochs": 3, "policy": ""}),
        # text, to be rejected with all else
        (Recipe, "--epochs 2.5 --learning-rate fast", {"epochs": "2.5", "learning_rate": "fast"}),
        (RunOptions, "--no-check-files", {"check_files": False}),
    ],
)
def test_only_what_was_given_is_a_setting(config, words, given):
    assert flags_of(config, *words.split()) == given
