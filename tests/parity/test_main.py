"""The command: its output, files and exit codes."""

import json
import re
import subprocess
import sys
import textwrap

import pytest

from resnet_fn import recipes
from resnet_fn.config import cli
from resnet_fn.parity import __main__ as command


def parity(*flags, timeout=300):
    command = [sys.executable, "-m", "resnet_fn.parity", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("mine.py", "--net: 'mine.py' is not FILE:FUNCTION; give for example nets/mine.py:build"),
        ("nowhere.py:build", "--net: there is no file nowhere.py; give FILE.py:FUNCTION"),
        ("mine.txt:build", "--net: mine.txt is not a Python file; its name must end in .py"),
        ("mine.py:build", "--net: mine.py has no function 'build'"),
        ("mine.py:number", "--net: mine.py has no function 'number'"),
    ],
)
def test_a_function_that_is_not_there_is_named(place, message, tmp_path):
    for name in ("mine.py", "mine.txt"):
        (tmp_path / name).write_text("number = 7\n")
    with pytest.raises(cli.UsageError) as error:
        command.load_function(place, "--net")
    assert str(error.value) == message


def test_a_function_may_import_from_beside_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "beside_the_net.py").write_text("number = 7\n")
    (tmp_path / "mine.py").write_text("import beside_the_net\ndef build():\n    return beside_the_net.number\n")
    assert command.load_function("mine.py:build", "--net")() == 7


def test_the_learning_rate_goes_with_the_batch():
    whole = recipes.recipe("digits")
    use = command.ladder_recipe("digits", whole.batch_size // 4, None)
    assert (use.batch_size, use.learning_rate) == (whole.batch_size // 4, whole.learning_rate / 4)
    assert use.min_learning_rate == whole.min_learning_rate / 4
    assert command.ladder_recipe("digits", 4, 0.5).learning_rate == 0.5


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--steps", "0"], "--steps: 0 is too small; give 1 or more"),
        (["--batch-size", "-1"], "--batch-size: -1 is too small; give 1 or more"),
        (["--recipe", "digit"], "recipe: 'digit' is unknown; did you mean digits?"),
        (["--data", "none.jpg"], "--data: none.jpg cannot be read (No such file or directory); name JPEG files"),
    ],
)
def test_mistakes_are_named(flags, message):
    with pytest.raises(cli.UsageError) as error:
        command.main(flags)
    assert str(error.value) == message


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
def test_the_ladder_has_a_data_stage(torch, tmp_path, make_photograph, encode):
    file = tmp_path / "a photograph.jpg"
    file.write_bytes(encode(make_photograph(3, 300, 260), quality=90))
    flags = ("--image-size", "16", "--steps", "1", "--data", str(file), "--json", str(tmp_path / "ladder.json"))
    done = parity(*flags)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("data stage")
    stages = json.loads((tmp_path / "ladder.json").read_text())["data"]
    assert [stage["largest"] for stage in stages[:2]] == [0, 0]


@pytest.mark.slow
def test_resnet50_ladder_at_64_pixels(torch):
    done = parity("--model", "resnet50", "--image-size", "64", "--batch-size", "4", "--steps", "5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verdict: both compute the same" in done.stdout
