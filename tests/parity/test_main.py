"""The command: its output, files and exit codes."""

import pytest

from resnet_fn.config import cli
from resnet_fn.parity import __main__ as command


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--loss a.py:loss", "--loss: needs --our-loss FILE:FUNCTION, MindSpore's side of it"),
        ("--optimizer a.py:make", "--optimizer: needs --our-optimizer FILE:FUNCTION, MindSpore's side of it"),
        ("--inputs a.py:batches", "--inputs: goes with --net and --reference"),
        ("record --model resnet8", "--out: needs a folder to write; give --out trace"),
        ("record --net a.py:build --reference b.py:build --out x", "--net: give it or --reference, not both"),
        ("record --like trace --out x", "--like: goes with --net; a reference is recorded from its flags"),
        (
            "record --net a.py:b --like trace --out x --steps 9 --recipe digits --loss bce",
            "--like: the trace has its own task; leave out --recipe, --steps, --loss",
        ),
        ("replay trace --net a.py:build --model resnet8", "--net: give it or --model, not both"),
        ("--optimizer adan", "optimizer: 'adan' is unknown; "),
        # A bare name was once ignored, and the package's own net compared instead.
        ("--net mine --reference x", "--net: 'mine' is not FILE:FUNCTION; give for example nets/mine.py:build"),
        ("record --reference mine --out trace", "--reference: 'mine' is not FILE:FUNCTION; give"),
    ],
)
def test_mistakes_are_named(arguments, message):
    with pytest.raises(cli.UsageError) as error:
        command.main(arguments.split())
    assert str(error.value).startswith(message)


def test_command_mistakes_are_one_line(python):
    words = "--net: needs --reference FILE:FUNCTION, the torch module that it was ported from"
    assert python("-m", "resnet_fn.parity", "--net", "mine.py:build", code=2).stderr == f"parity: error: {words}\n"


@pytest.mark.slow
def test_resnet50_ladder_at_64_pixels(torch, tmp_path, python):
    """(With probes, and more updates: of ResNet-8 in docs/migrating.md and test_replay.py.)"""
    flags = ("--image-size", "64", "--batch-size", "4", "--steps", "2", "--quick", "--report", "new/out")
    done = python("-m", "resnet_fn.parity", "--model", "resnet50", *flags, seconds=900)
    assert "verdict: both compute the same" in done.stdout
    assert done.stdout.endswith("report: new/out/parity.html\n")
    assert "Both compute the same" in (tmp_path / "new/out/parity.html").read_text()
