"""A trace gives the verdict of the live ladder, with one framework missing on either side."""

import json
import re
import shlex
import textwrap
from pathlib import Path

import pytest

THEIRS = """
    import torch
    def build():
        torch.manual_seed(0)
        return torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, 2, 1, bias=False), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 10))
"""
OURS = """
    from mindspore import nn
    class Net(nn.Cell):
        def __init__(self, **conv):
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3, 2, **conv)
            self.bn = nn.BatchNorm2d(8)
            self.relu = nn.ReLU()
            self.fc = nn.Dense(8, 10)
        def construct(self, x):
            return self.fc(self.relu(self.bn(self.conv(x))).mean((2, 3)))
    def right():
        return Net(pad_mode="pad", padding=1)
    def wrong():
        return Net()
    def zeros():
        net = right()
        net.fc = nn.Dense(8, 10, bias_init="zeros")
        return net
"""
TASK = shlex.split("--image-size 8 --in-channels 3 --steps 3 --batch-size 4 --clip-norm 0")


@pytest.fixture(scope="module")
def run(python, tmp_path_factory):
    """run(*commands, without, codes=(0,)): what the command printed for each of these lists of
    words, one after the other in a process where packages cannot be imported; their exit codes.
    """
    folder = tmp_path_factory.mktemp("nets")
    (folder / "theirs.py").write_text(textwrap.dedent(THEIRS))
    (folder / "ours.py").write_text(textwrap.dedent(OURS))

    def parity(*commands: list[str], without: str, codes: tuple[int, ...] = (0,)):
        text = f"import sys; sys.modules |= dict.fromkeys({without.split()!r})\n"
        text += "from resnet_fn.parity.__main__ import main\ncodes = ()\n"
        text += f"for words in {commands!r}:\n    codes += (main(words),)\n    print('\f')\n"
        text += f"assert codes == {codes!r}, codes"
        printed = python("-c", text, seconds=300, cwd=folder).stdout
        return printed.split("\f\n")[:-1]

    return parity


@pytest.fixture(scope="module")
def parity(torch, run):
    """The same, beside a trace of the reference."""
    words = ["record", "--reference", "theirs.py:build", *TASK, "--out", "theirs"]
    (recorded,) = run(words, without="mindspore")
    assert recorded.startswith("theirs: PyTorch ")
    return run


@pytest.mark.slow
def test_a_replay_says_what_the_live_ladder_says(tmp_path, parity):
    """To the last digit; a trace may be of another environment."""
    nets = {
        "right": ["--no-initialisation"],
        "wrong": ["--no-initialisation", "--quick"],
    }
    both = {}
    for way, words in (
        ("replayed", ["replay", "theirs"]),
        ("live", ["--reference", "theirs.py:build", *TASK]),
    ):
        commands = [
            [*words, "--net", f"ours.py:{net}", *flags, f"--json={tmp_path / way}-{net}"]
            for net, flags in nets.items()
        ]
        without = "torch" if way == "replayed" else "nothing"
        both[way] = parity(*commands, without=without, codes=(0, 1))
    own = re.compile(
        r"(?<=updates of 4 samples with sgd), \d+ s|^environment:\n(?:  .+\n)+", re.MULTILINE
    )
    for net, replayed, live in zip(nets, both["replayed"], both["live"], strict=True):
        assert own.sub("", replayed.split("\n", 1)[1]) == own.sub("", live)
        saved, other = (
            json.loads((tmp_path / f"{way}-{net}").read_text()) for way in ("replayed", "live")
        )
        assert saved == other
        assert re.search(r"^  fc\.weight +5\.weight$", live, re.MULTILINE)
    # of the wrong one, the last
    assert "first layer that differs: conv (the reference's 0) in evaluation mode: " in live
    assert "  conv: pad_mode same pads 0/1, the reference 1/1\n" in live
    assert (saved["agrees"], saved["first_stage"], saved["first_layer"]) == (
        False,
        "eval forward",
        "conv",
    )


@pytest.mark.slow
def test_recorded_traces_are_compared_without_the_nets(parity):
    """Of both frameworks, and of MindSpore alone; a net that is recorded like a trace keeps how it
    came.
    """
    names = ("right", "wrong", "zeros")
    parity(
        *(
            ["record", "--net", f"ours.py:{name}", "--like=theirs", "--probes=none", "--out", name]
            for name in names
        ),
        without="torch",
        codes=(0, 0, 0),
    )
    pairs = (("zeros", "theirs"), ("right", "right"), ("wrong", "right"))
    commands = [["compare", *pair] for pair in pairs]
    zeros, right, wrong = parity(*commands, without="mindspore torch", codes=(1, 0, 1))
    assert "first stage that differs: initialisation, fc.bias" in zeros
    assert "fc.bias: all 0 in the port, drawn in -0." in zeros
    assert "bn." not in zeros.partition("first stage that differs")[2]  # fresh on both sides
    assert "with copied weights" not in zeros
    assert "verdict: both compute the same without measured rounding of the reference" in right
    assert "first layer that differs: conv in evaluation mode" in wrong
    assert "conv: pad_mode same pads 0/1, the reference 1/1" in wrong


def test_comparing_needs_numpy_alone(run):
    trace = Path(__file__).parents[1] / "acceptance" / "trace"
    (printed,) = run(["compare", str(trace), str(trace)], without="mindspore torch")
    assert "verdict: both compute the same" in printed
