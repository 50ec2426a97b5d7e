"""Ports that do not compile: `--mode pynative`, and the errors that name what fails and what to do."""

import dataclasses
import os
from typing import Any

import mindspore
import numpy as np
import pytest
from mindspore import Tensor, mint, nn, ops

from resnet_fn.parity import __main__ as command
from resnet_fn.parity.mindspore_side import record_net, run_in
from resnet_fn.parity.replay import compare_step
from resnet_fn.parity.report import table
from resnet_fn.parity.trace import Task
from resnet_fn.parity.trace_folder import load_recording, save_recording
from resnet_fn.recipes import recipe

pytestmark = pytest.mark.usefixtures("device")

BATCHES = [(np.random.default_rng(i).normal(size=(4, 6)).astype(np.float32), np.array([0, 1, 2, 0])) for i in range(3)]
RECIPE = recipe("digits")


@mindspore.jit
def positive(x: Tensor) -> Tensor:
    """A ReLU that no graph can hold: it reads its values."""
    return x * Tensor((np.asarray(x.asnumpy()) > 0).astype(np.float32))


class Port(nn.Cell):
    def __init__(self, act: Any = positive, layer: Any = nn.Dense) -> None:
        super().__init__()
        self.a, self.b, self.act = layer(6, 8), layer(8, 3), act

    def construct(self, x: Tensor) -> Tensor:
        return self.b(self.act(self.a(x)))


@dataclasses.dataclass
class Output:
    logits: Tensor


class Wrapped(Port):
    """As ports of transformers are: outputs by attribute, of which MindSpore makes no graph."""

    def construct(self, x: Tensor) -> Tensor:
        output = Output(logits=super().construct(x))
        output.logits = output.logits * 1
        return output.logits


@pytest.fixture
def reference(torch: Any) -> Any:
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(6, 8), torch.nn.Linear(8, 3)

        def forward(self, x):
            return self.b(torch.relu(self.a(x)))

    return Net()


def test_a_port_that_does_not_compile_is_compared_uncompiled_if_asked(reference):
    with pytest.raises(ValueError, match="--mode pynative"):
        compare_step(Wrapped(nn.ReLU()), reference, BATCHES, RECIPE, quick=True)
    ladder = compare_step(Wrapped(nn.ReLU()), reference, BATCHES, RECIPE, quick=True, mode="pynative")
    assert ladder.agrees
    assert not ladder.compiled
    assert "verdict: both compute the same, not compiled" in table(ladder)
    assert "not compiled" not in table(compare_step(Port(nn.ReLU()), reference, BATCHES, RECIPE, quick=True))


def test_functions_that_the_port_compiles_itself_run_in_python(reference):
    with pytest.raises(ValueError, match="--mode pynative"):
        compare_step(Port(), reference, BATCHES, RECIPE, quick=True)
    assert not compare_step(Port(), reference, BATCHES, RECIPE, quick=True, mode="pynative").first_stage
    assert "MS_JIT" not in os.environ
    twice = {"loss": lambda x, y: 2 * ops.cross_entropy(x, y), "mode": "pynative"}
    wrong = table(compare_step(Port(), reference, BATCHES, RECIPE, quick=True, **twice))
    assert "DIFFERS" in wrong
    assert "not compiled" in wrong


def test_both_modes_compute_the_same_and_a_trace_keeps_its_mode(tmp_path):
    net = Port(nn.ReLU())
    one = record_net(net, Task(RECIPE, BATCHES), probes=False)
    with run_in("pynative"):
        two = record_net(net, Task(RECIPE, BATCHES), probes=False)
    assert [one.environment["mode"], two.environment["mode"]] == ["graph", "pynative"]
    np.testing.assert_allclose(one.trace.losses, two.trace.losses, rtol=1e-6)
    for name, value in one.trace.after[-1].items():
        np.testing.assert_allclose(value, two.trace.after[-1][name], atol=1e-6)
    save_recording(two, tmp_path / "trace")
    assert load_recording(tmp_path / "trace").environment["mode"] == "pynative"


def broken(x: Tensor) -> Tensor:
    raise NotImplementedError("no mask without padding")


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (mint.nn.functional.gelu, "no CPU kernel: GeluExt"),
        (lambda x: x.repeat(1, 1), "no CPU kernel: repeat"),
        (lambda x: x.reshape(4, 5), "give it the inputs that the reference takes"),
        (broken, "--debug"),
    ],
)
def test_what_fails_is_named_with_its_own_remedy(reference, act, expected):
    with pytest.raises(ValueError) as error:
        compare_step(Port(act), reference, BATCHES, RECIPE, quick=True, mode="pynative")
    assert expected in str(error.value)
    assert ("the reference takes" in str(error.value)) == ("the reference takes" in expected)


FILES = """
import numpy as np, torch
from mindspore import nn

def reference():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))

class Output:
    pass

class Port(nn.SequentialCell):
    def construct(self, x):
        output = Output()
        output.logits = super().construct(x)
        return output.logits

def port():
    return Port(nn.Dense(6, 8), nn.ReLU(), nn.Dense(8, 3))

def batches():
    rng = np.random.default_rng(0)
    return [(rng.normal(size=(4, 6)).astype(np.float32), rng.integers(0, 3, 4)) for _ in range(3)]
"""


def test_the_commands(torch, tmp_path, capsys, monkeypatch):
    def run(words: str) -> int:
        return command.main(words.split())

    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(FILES)
    sides = "--reference nets.py:reference --net nets.py:port --inputs nets.py:batches"
    assert run(f"{sides} --mode pynative --quick") == 0
    assert run("record --reference nets.py:reference --inputs nets.py:batches --probes none --out theirs") == 0
    assert run("record --net nets.py:port --like theirs --mode pynative --probes none --out ours") == 0
    capsys.readouterr()
    for words in ("replay theirs --net nets.py:port --mode pynative --quick", "compare ours theirs"):
        assert run(words) == 0
        assert "the same, not compiled" in capsys.readouterr().out
    with pytest.raises(ValueError, match="--mode pynative"):
        run("replay theirs --net nets.py:port")
