"""Help, and the list of commands."""

import shlex

import pytest

from resnet_fn import __main__ as listing
from resnet_fn.config import cli

SCREEN = 24  # lines of 80 columns


@pytest.mark.parametrize("command", sorted(listing.COMMANDS))
def test_every_command_has_help_in_groups_of_a_screen(command, python):
    done = python("-m", f"resnet_fn.{command}", "--help", COLUMNS="80")
    assert done.stdout.startswith(f"usage: python -m resnet_fn.{command}")
    assert "examples:\n" in done.stdout
    assert all(len(line) <= 100 for line in done.stdout.splitlines())  # an example stays on one line
    for group in done.stdout.split("\n\n"):
        assert len(group.splitlines()) <= SCREEN + 1, group
    assert "mindspore" not in done.stderr.lower()


def test_the_package_lists_its_commands(python):
    done = python("-m", "resnet_fn", COLUMNS="80")
    lines = [line.split(maxsplit=3) for line in done.stdout.splitlines() if line.startswith("  python")]
    assert [words[2] for words in lines][:6] == [
        f"resnet_fn.{name}" for name in ("train", "launch", "evaluate", "predict", "export", "plot")
    ]
    assert all(len(words) == 4 for words in lines)  # each says what it does


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("trian", "did you mean train"),
        ("export RUN --out 'my net.onnx'", r"^'export' is .* type python -m resnet_fn.export RUN --out 'my net.onnx'$"),
        ("--help train --epochs 3", r"type python -m resnet_fn.train --epochs 3$"),
        ("--bogus", "use|did you mean"),
    ],
)
def test_a_wrong_command_names_the_right_one(word, hint):
    with pytest.raises(cli.UsageError, match=hint):
        listing.main(shlex.split(word))
