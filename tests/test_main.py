"""The list of commands, their help and versions."""

import functools
import os
import platform
import re

import pytest

import resnet_fn
from resnet_fn import __main__ as listing
from resnet_fn.config import cli
from resnet_fn.config.packages import installed_version

SCREEN = 24  # lines of 80 columns


@pytest.mark.parametrize(
    ("command", "flag"), [*((name, "--help") for name in listing.COMMANDS), ("train", "--help-all")]
)
def test_every_command_has_help_in_short_groups(command, flag, python, monkeypatch, capsys):
    """As a subcommand, too: it differs in the form of the commands that it names, and in line
    breaks, only.
    """
    done = python("-m", f"resnet_fn.{command}", flag, COLUMNS="80")
    assert done.stdout.startswith(f"usage: python -m resnet_fn.{command}")
    assert "examples:\n" in done.stdout
    # an example stays on one line
    assert all(len(line) <= 100 for line in done.stdout.splitlines())
    for group in done.stdout.split("\n\n"):
        assert len(group.splitlines()) <= SCREEN + 1, group
    assert "mindspore" not in done.stderr.lower()
    monkeypatch.setattr("sys.argv", ["python -m resnet_fn", command, flag])
    monkeypatch.setenv(cli.COMMAND_PREFIX_VARIABLE, "python -m resnet_fn ")
    with pytest.raises(SystemExit, match=r"^0$"):
        listing.run()
    other = capsys.readouterr().out.replace("python -m resnet_fn ", "python -m resnet_fn.")
    assert other.split() == done.stdout.split()


def test_the_versions_come_without_mindspore(python):
    """Of a checkout that is not installed, and where MindSpore cannot be imported."""
    line = (
        f"resnet_fn {resnet_fn.__version__}, MindSpore {installed_version('mindspore')}, Python "
        f"{platform.python_version()}\n"
    )
    for words in (
        ("resnet_fn",),
        ("resnet_fn", "train"),
        ("resnet_fn.predict",),
        ("resnet_fn.parity", "record"),
    ):
        assert python("-m", *words, "--version").stdout == line
    code = "import sys; sys.modules['mindspore'] = None; from resnet_fn.__main__ import run; run()"
    assert python("-c", code, "--version").stdout == line


def test_the_list_names_both_halves_in_80_columns(python):
    done = python("-m", "resnet_fn", COLUMNS="80")
    assert max(map(len, done.stdout.splitlines())) <= 80
    trainer = done.stdout.index("\nThe trainer ")
    ladder = done.stdout.index("\nThe ladder ")
    assert trainer < done.stdout.index(" predict ") < ladder < done.stdout.index(" parity ")
    assert python("-m", "resnet_fn", "--help").stdout == done.stdout
    # with what each does
    commands = re.findall(r"^  python -m resnet_fn (\S+) +\S", done.stdout, re.MULTILINE)
    assert len(commands) == done.stdout.count("\n  python -m resnet_fn ")
    assert commands[:6] == ["train", "launch", "evaluate", "predict", "export", "plot"]


@pytest.mark.parametrize("word", ["-V", "--verbose", "--vflip"])
def test_the_list_gives_no_advice_on_training(word, python):
    error = python("-m", "resnet_fn", word, code=2).stderr
    assert f"unknown argument '{word}'" in error
    assert "leave it out" not in error


def test_the_installed_command_repeats_the_typed_name(installed, python):
    for path, typed in (("/nowhere", str(installed)), (str(installed.parent), "resnet_fn")):
        run = functools.partial(python, installed, PATH=f"{path}:{os.environ['PATH']}")
        assert f"  {typed} train " in run().stdout
        assert run("recipes", "digits").stdout.endswith(f"\n{typed} train --recipe digits\n")
        assert f"usage: {typed} launch " in run("--help", "launch").stdout
        error = run("trian", code=2).stderr
        assert error == "resnet_fn: error: unknown argument 'trian'; did you mean train?\n"
        error = run("train", "--workers", "2", code=2).stderr
        assert error.startswith("train: error: ")
        assert f"{typed} launch --workers N" in error
