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

    def parity(*commands, without, codes=(0,)):
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
    nets = {"right": [], "wrong": ["--quick"]}

    def verdicts(*words, without):
        commands = [
            [
                *words,
                f"--net=ours.py:{net}",
                "--no-initialisation",
                *flags,
                f"--json={tmp_path / net}",
            ]
            for net, flags in nets.items()
        ]
        printed = parity(*commands, without=without, codes=(0, 1))
        return printed, [json.loads((tmp_path / net).read_text()) for net in nets]

    replayed, saved = verdicts("replay", "theirs", without="torch")
    live, other = verdicts("--reference", "theirs.py:build", *TASK, without="nothing")
    assert saved == other
    own = re.compile(
        r"(?<=updates of 4 samples with sgd), \d+ s|^environment:\n(?:  .+\n)+", re.MULTILINE
    )
    for by_trace, by_net in zip(replayed, live, strict=True):
        assert own.sub("", by_trace.split("\n", 1)[1]) == own.sub("", by_net)
        assert re.search(r"^  fc\.weight +5\.weight$", by_net, re.MULTILINE)
    assert "first layer that differs: conv (the reference's 0) in evaluation mode: " in live[1]
    assert "  conv: pad_mode same pads 0/1, the reference 1/1\n" in live[1]
    wrong = [saved[1][name] for name in ("agrees", "first_stage", "first_layer")]
    assert wrong == [False, "eval forward", "conv"]


@pytest.mark.slow
def test_recorded_traces_are_compared_without_the_nets(parity):
    """Of both frameworks, and of MindSpore alone; a net that is recorded like a trace keeps how it
    came.
    """
    like = ["--like=theirs", "--probes=none"]
    recorded = [
        ["record", f"--net=ours.py:{name}", *like, "--out", name]
        for name in ("right", "wrong", "zeros")
    ]
    parity(*recorded, without="torch", codes=(0, 0, 0))
    pairs = ["zeros theirs", "right right", "wrong right"]
    commands = [f"compare {pair}".split() for pair in pairs]
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
