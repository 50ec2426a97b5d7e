"""The command: exit codes, JSON, errors, lines of 80 columns."""

import json
from pathlib import Path

import pytest

from resnet_fn.config.cli import UsageError
from resnet_fn.parity.one_net import compare_ways

TORCH = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense, self.count = nn.Linear(48, 10), 0

    def forward(self, x):
        return self.dense(x.flatten(1))

class Moves(Net):
    def forward(self, x):
        self.count += 1
        return super().forward(x) * self.count

class Fails(Net):
    def forward(self, x):
        if len(x) == 1:
            raise RuntimeError("takes two samples")
        return super().forward(x)
"""
MINDSPORE = """
from mindspore import nn

class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(48, 10)

    def construct(self, x):
        return self.dense(x.reshape(x.shape[0], -1))
"""
SMALL = ["--image-size", "4"]


@pytest.fixture(autouse=True)
def files():
    Path("torch_net.py").write_text(TORCH)
    Path("mindspore_net.py").write_text(MINDSPORE)
    Path("other.py").write_text("def build():\n    return 3\n")


def run(net, *more):
    return compare_ways([net, *SMALL, *more])


@pytest.mark.usefixtures("torch")
def test_exit_codes_say_same_differs_and_undecided(capsys):
    assert run("torch_net.py:Net") == 0
    assert "verdict: the net computes the same in 5 ways" in capsys.readouterr().out
    given = ["--ways", "unpadded", "--json", "out.json"]
    assert run("torch_net.py:Net", *given) == 3  # nothing shows a length
    assert not json.loads(Path("out.json").read_text())["agrees"]
    assert run("torch_net.py:Fails", "--ways", "alone,repeated") == 3
    out = capsys.readouterr().out
    assert "takes two samples" in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.usefixtures("torch")
def test_json_has_way_stage_and_layer():
    assert run("torch_net.py:Moves", "--ways", "repeated,unpadded", "--json", "out.json") == 1
    content = json.loads(Path("out.json").read_text())
    assert (content["format"], content["version"]) == ("resnet_fn parity self", 1)
    first = [content[f"first_{what}"] for what in ("way", "stage", "layer")]
    assert first == ["repeated", "eval forward", None]
    assert not content["agrees"]
    assert content["not_exercised"] == ["unpadded"]
    ways = {one["name"]: one for one in content["ways"]}
    assert ways["unpadded"]["verdict"] == "skipped"
    assert "--length-axis" in ways["unpadded"]["note"]
    (stage,) = [one for one in ways["repeated"]["stages"] if one["verdict"] == "DIFFERS"]
    assert stage["differences"][0]["relative"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "NET: none is given"),
        ("torch_net.py:Net --ways repeat", "did you mean repeated"),
        ("torch_net.py:Net --accumulate 2", "--accumulate: micro-batches are one"),
        ("torch_net.py:Net --ways ,", "--ways: ',' names no way; give for example"),
        ("torch_net.py:Net --ema-every 2", "--ema-every: no way has a moving average"),
        ("torch_net.py:Net --ways half --compile", "without compiled in --ways"),
        ("torch_net.py:Net --ways alone --half none", "--half: has no effect without"),
        ("torch_net.py:Net --ways=half --length-axis=x=1", "--length-axis: has no effect"),
        ("mindspore_net.py:Net --image-size 4 --compile", "because graph mode is always compared"),
        ("mindspore_net.py:Net --length-axis ids=1", "the inputs are inputs [4, 3, 32, 32]"),
        ("mindspore_net.py:Net --length-axis inputs=4", "give for example inputs=1"),
    ],
)
def test_wrong_usage_is_named(arguments, words, torch, raises_line):
    with raises_line(words, kind=UsageError):
        compare_ways(arguments.split())


def test_a_torch_net_takes_no_device(python, torch):
    given = ("self", "torch_net.py:Net", *SMALL, "--device", "Ascend")
    done = python("-m", "resnet_fn.parity", *given, code=2)
    assert "--device: has no effect on a torch net, which runs on the CPU" in done.stderr


def test_something_else_than_a_net_is_rejected():
    with pytest.raises(ValueError, match="returned int; return a Cell or a torch Module"):
        run("other.py:build")


@pytest.mark.parametrize(("own", "other"), [("torch", "mindspore"), ("mindspore", "torch")])
def test_a_net_needs_only_its_own_framework(own, other, torch, python):
    code = (
        "import sys; from resnet_fn.parity.__main__ import main; "
        f"code = main(['self', '{own}_net.py:Net', '--ways', 'alone', '--image-size', '4']); "
        f"print(code, '{other}' in sys.modules)"
    )
    assert python("-c", code).stdout.splitlines()[-1] == "0 False"
