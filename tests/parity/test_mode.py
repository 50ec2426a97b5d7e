"""Ports that do not compile: `--mode pynative`, and the errors that name what fails and what to
do.
"""

import dataclasses
import os

import mindspore
import numpy as np
import pytest
from mindspore import Tensor, mint, nn, ops

from resnet_fn.parity.plan import plan_of
from resnet_fn.parity.record.mindspore_cell import run_in
from resnet_fn.parity.record.mindspore_side import MindSporeSide
from resnet_fn.parity.record.record import record
from resnet_fn.parity.show.table import table
from resnet_fn.parity.trace.stages import ArrayId
from small_nets import SGD, Ours, Theirs, cell, ladder_of, t

pytestmark = pytest.mark.usefixtures("device")

BATCHES = [
    (np.random.default_rng(i).normal(size=(4, 8)).astype(np.float32), np.array([0, 1, 2, 0]))
    for i in range(3)
]


@mindspore.jit
def positive(x):
    """A ReLU that no graph can hold: it reads its values."""
    return x * Tensor((np.asarray(x.asnumpy()) > 0).astype(np.float32))


@dataclasses.dataclass
class Output:
    logits: Tensor


class Wrapped(Ours):
    """As ports of transformers are: outputs by attribute, of which MindSpore makes no graph."""

    def construct(self, x):
        output = Output(logits=super().construct(x))
        output.logits = output.logits * 1
        return output.logits


def reference():
    return Theirs(t.Linear(8, 8), t.ReLU())


def test_a_port_that_does_not_compile_runs_uncompiled():
    net = Wrapped(nn.Dense(8, 8), nn.ReLU())
    with pytest.raises(ValueError, match="--mode pynative"):
        ladder_of(net, reference(), BATCHES, mode="graph")
    ladder = ladder_of(net, reference(), BATCHES)
    assert (ladder.agrees, ladder.compiled) == (True, False)
    assert "verdict: both compute the same, not compiled" in table(ladder)


def test_functions_the_port_compiles_run_in_python():
    net = Ours(nn.Dense(8, 8), cell(lambda self, x: positive(x)))
    with pytest.raises(ValueError, match="--mode pynative"):
        ladder_of(net, reference(), BATCHES, mode="graph")
    assert not ladder_of(net, reference(), BATCHES).first_stage
    assert "MS_JIT" not in os.environ
    doubled = {"loss": lambda x, y: 2 * ops.cross_entropy(x, y)}
    wrong = table(ladder_of(net, reference(), BATCHES, **doubled))
    assert "DIFFERS" in wrong
    assert "not compiled" in wrong


def test_traces_store_their_mode_and_losses_alone():
    net, plan = Ours(nn.Dense(8, 8), nn.ReLU()), plan_of(SGD, BATCHES, accumulate=2)
    graph = record(MindSporeSide(net, plan, loss=ops.cross_entropy), probes=False).trace
    logits, last = graph.run.train_outputs[0]["logits"], BATCHES[0][1][2:]
    loss = ops.cross_entropy(Tensor(logits), Tensor(last, mindspore.int32)).item()
    assert graph.losses_alone[ArrayId(samples=2, factor=1)] == pytest.approx(loss)
    assert graph.environment["mode"] == "graph"
    with run_in("pynative"):
        assert (
            record(MindSporeSide(net, plan), probes=False).trace.environment["mode"] == "pynative"
        )


def broken(x):
    raise NotImplementedError("no mask without padding")


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (mint.nn.functional.gelu, "no CPU kernel: GeluExt"),
        (lambda x: x.repeat(1, 1), "no CPU kernel: repeat"),
        (lambda x: x.reshape(4, 5), "give the net the inputs that the reference takes"),
        (broken, "--debug"),
    ],
)
def test_what_fails_is_named_with_its_own_remedy(act, expected):
    with pytest.raises(ValueError) as error:
        ladder_of(Ours(nn.Dense(8, 8), cell(lambda self, x: act(x))), reference(), BATCHES)
    assert expected in str(error.value)
    assert ("the reference takes" in str(error.value)) == ("the reference takes" in expected)
