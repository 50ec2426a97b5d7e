"""The command: its output, files and exit codes."""

import json
import re
import subprocess
import sys
import textwrap

import pytest

from resnet_fn.config import cli
from resnet_fn.parity import __main__ as command


def parity(*flags, timeout=300):
    command = [sys.executable, "-m", "resnet_fn.parity", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--net", "mine.py:build"],
            "--net: needs --reference FILE:FUNCTION, the torch module that it was ported from",
        ),
        (["--loss", "a.py:loss"], "--loss: needs --our-loss FILE:FUNCTION, MindSpore's side of it"),
        (["--optimizer", "a.py:make"], "--optimizer: needs --our-optimizer FILE:FUNCTION, MindSpore's side of it"),
        (["--inputs", "a.py:batches"], "--inputs: goes with --net and --reference"),
        (["record", "--model", "resnet8"], "--out: needs a folder to write; give --out trace"),
        (
            ["record", "--net", "a.py:build", "--reference", "b.py:build", "--out", "x"],
            "--net: give it or --reference, not both",
        ),
        (
            ["record", "--like", "trace", "--out", "x"],
            "--like: goes with --net; a reference is recorded from its flags",
        ),
        (
            [
                "record",
                "--net",
                "a.py:b",
                "--like",
                "trace",
                "--out",
                "x",
                "--steps",
                "9",
                "--recipe",
                "digits",
                "--loss",
                "bce",
            ],
            "--like: the trace says what to do; leave out --recipe, --steps, --loss",
        ),
        (["replay", "trace", "--net", "a.py:build", "--model", "resnet8"], "--net: give it or --model, not both"),
        (["--optimizer", "adan"], "optimizer: 'adan' is unknown; "),
    ],
)
def test_mistakes_are_named(arguments, message):
    with pytest.raises(cli.UsageError) as error:
        command.main(arguments)
    assert str(error.value).startswith(message)


def test_command_mistakes_are_one_line():
    done = parity("--net", "mine.py:build")
    assert (done.returncode, done.stderr) == (
        2,
        "parity: error: --net: needs --reference FILE:FUNCTION, the torch module that it was ported from\n",
    )


@pytest.mark.slow
def test_command_on_a_half_ported_net(torch, tmp_path):
    (tmp_path / "theirs.py").write_text(
        textwrap.dedent("""
        import torch
        def build():
            return torch.nn.Sequential(
                torch.nn.Conv2d(3, 8, 3, 2, 1, bias=False), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
                torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 10))
        """)
    )
    (tmp_path / "mine.py").write_text(
        textwrap.dedent("""
        from mindspore import nn
        class Net(nn.Cell):
            def __init__(self):
                super().__init__()
                self.conv = nn.Conv2d(3, 8, 3, 2)
                self.bn = nn.BatchNorm2d(8)
                self.relu = nn.ReLU()
                self.fc = nn.Dense(8, 10)
            def construct(self, x):
                return self.fc(self.relu(self.bn(self.conv(x))).mean((2, 3)))
        """)
    )
    flags = ("--reference", "theirs.py:build", "--net", "mine.py:Net", "--image-size", "8", "--steps", "2")
    done = parity(*flags, "--no-initialisation", "--json", "ladder.json")
    assert done.returncode == 1, done.stderr
    assert "first layer that differs: conv (the reference's 0) in evaluation mode: " in done.stdout
    assert "  conv: pad_mode same pads 0/1, the reference 1/1\n" in done.stdout
    assert re.search(r"^  fc\.weight +5\.weight$", done.stdout, re.MULTILINE)
    saved = json.loads((tmp_path / "ladder.json").read_text())
    assert (saved["agrees"], saved["first_stage"], saved["first_layer"]) == (False, "eval forward", "conv")


@pytest.mark.slow
def test_figure(torch, tmp_path):
    pytest.importorskip("matplotlib", reason="the figure needs matplotlib: pip install 'resnet_fn[plots]'")
    done = parity("--image-size", "16", "--steps", "1", "--figure", "layers.png")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert (tmp_path / "layers.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_resnet50_ladder_at_64_pixels(torch):
    done = parity("--model", "resnet50", "--image-size", "64", "--batch-size", "4", "--steps", "5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verdict: both compute the same" in done.stdout
