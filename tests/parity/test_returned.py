"""What a net returns is compared in its own type: objects, numbers, texts, integers, booleans and
complex numbers.
"""

import dataclasses
import functools
from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import mindspore
import pytest
from mindspore import nn, ops

from resnet_fn.parity.__main__ import main
from resnet_fn.parity.show.table import table
from resnet_fn.parity.show.titles import doubt_of
from resnet_fn.parity.trace.difference import DIFFERS
from resnet_fn.parity.trace.returned import returned
from small_nets import cell, ladder_of, module, recording_of, stage_of, torch, vectors, write_net

Pair = namedtuple("Pair", "logits extra")


@dataclasses.dataclass
class Output:
    logits: Any
    extra: Any


class Box:
    """An object with slots, as some detectors have it."""

    __slots__ = ("extra", "logits")

    def __init__(self, logits, extra):
        self.logits, self.extra = logits, extra


def many(net, h, x):
    few = h if net.training else h[h > 0]
    return [h, h.argmax(1) + 100_000, h > 0, torch.complex(h, 2 * h), few]


# What either net returns of its last layer's output: in a wrong port, `x` is not `h`.
BOTH = {
    "list": lambda net, h, x: [h, 2 * x],
    "object": lambda net, h, x: SimpleNamespace(logits=h, extra=2 * x),
    "slots": lambda net, h, x: Box(h, 2 * x),
    "nested": lambda net, h, x: Output(h, [{"a": Pair(h, 2 * x)}]),
    "item": lambda net, h, x: Output(h, x.sum().item()),
    "text": lambda net, h, x: Output(h, [f"class {index}" for index in x.argmax(1).tolist()]),
    "ids": lambda net, h, x: Output(h, x.argmax(1) + 100_000),
    "bool": lambda net, h, x: Output(h, x > 0),
    "always few": lambda net, h, x: Output(h, x.masked_select(x > 0)),
}
THEIRS = {
    "array": lambda net, h, x: Output(h, h.detach().numpy()),
    "complex": lambda net, h, x: Output(h, torch.complex(h, 2 * h)),
    "parts": lambda net, h, x: Output(h, torch.complex(h, 2 * h)),
    "generator": lambda net, h, x: Output(h, (row for row in h)),
    "rounded": lambda net, h, x: Output(h, (1e7 * h).round().long()),
    "many": many,
}
OURS = {
    "array": lambda net, h, x: Output(h, x.asnumpy()),
    "complex": lambda net, h, x: Output(h, ops.Complex()(h, 2 * x)),
    "parts": lambda net, h, x: Output(h, ops.stack([h, 2 * x], -1)),
    "generator": lambda net, h, x: Output(h, x),
    "rounded": lambda net, h, x: Output(h, ops.round(1e7 * x).astype(mindspore.int64)),
}


class Compiled(nn.Cell):
    """Returns a tuple: MindSpore does not train through an object in graph mode."""

    def __init__(self, kind, sign):
        super().__init__()
        self.kind, self.sign, self.head = kind, sign, nn.Dense(8, 3)
        self.complex = ops.Complex()

    def construct(self, x):
        h = self.head(x)
        x = self.sign * h
        if self.kind == "always few":
            return h, ops.masked_select(x, x > 0)
        few = h if self.training else self.sign * ops.masked_select(h, h > 0)
        return h, x.argmax(1) + 100_000, x > 0, self.complex(h, 2 * x), few


def loss_of_list(outputs, y):
    return ops.cross_entropy(outputs[0], y)


def our_loss(outputs, y):
    return ops.cross_entropy(outputs.logits, y)


def their_loss(outputs, y):
    logits = outputs[0] if isinstance(outputs, list) else outputs.logits
    return torch.nn.functional.cross_entropy(logits, y.long())


@functools.cache
def recorded(kind):
    def forward(self, x):
        h = self.head(x)
        return (BOTH | THEIRS)[kind](self, h, h)

    return recording_of(module(forward, head=torch.nn.Linear(8, 3)), vectors(), their_loss)


def compared(kind, sign=1):
    def construct(self, x):
        h = self.head(x)
        return (BOTH | OURS)[kind](self, h, sign * h)

    loss = loss_of_list if kind == "list" else our_loss
    return ladder_of(cell(construct, head=nn.Dense(8, 3)), recorded(kind), loss=loss)


@pytest.mark.parametrize("kind", [*BOTH, "array", "complex", "parts"])
@pytest.mark.parametrize("sign", [1, -1])
def test_what_a_net_returns_is_compared(kind, sign):
    ladder = compared(kind, sign)
    if sign < 0:
        assert "forward" in ladder.first_stage.id.name, table(ladder)
    else:
        assert ladder.agrees, table(ladder)


@pytest.mark.parametrize("kind", ["many", "always few"])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_compiled_net_s_outputs_are_compared(kind, sign):
    ladder = ladder_of(Compiled(kind, sign), recorded(kind), mode="graph", loss=loss_of_list)
    assert bool(ladder.first_stage) == (sign < 0), table(ladder)
    assert ladder.agrees == (sign > 0)
    if kind == "many" and sign < 0:
        differences = stage_of(ladder, "eval forward").differences
        differ = [item.name for item in differences if item.verdict == DIFFERS]
        assert differ == [f"logits {index}" for index in (1, 2, 3, 4)], table(ladder)


def test_what_cannot_be_read_is_undecided():
    ladder = compared("generator")
    assert [stage.id.name for stage in ladder.undecided] == ["forward", "forward"]
    assert "logits extra (generator) in the reference" in doubt_of(ladder.undecided[0])


def test_integers_that_rounding_changes_decide_nothing():
    ladder = compared("rounded")
    assert ladder.first_stage is None, table(ladder)
    assert "integers change by the reference's own rounding" in doubt_of(ladder.undecided[0])


@pytest.mark.parametrize(("factor", "code"), [(1, 3), (2, 1)])
def test_undecided_exits_with_3_a_difference_with_1(factor, code):
    body = "return self.head(x.reshape(len(x), -1)) * {}, {}"
    unread = body.format(1, "(one for one in x)")
    write_net("theirs.py", "torch", "self.head = nn.Linear(48, 10)", unread)
    write_net("ours.py", "mindspore", "self.head = nn.Dense(48, 10)", body.format(factor, "x"))
    words = "--reference theirs.py:Net --net ours.py:Net --image-size 4 --steps 1 --quick"
    assert main([*words.split(), "--no-initialisation", "--mode=pynative"]) == code


def test_a_custom_class_may_be_named_packed_sequence():
    @dataclasses.dataclass
    class PackedSequence:
        data: Any

    assert [leaf for _, leaf in returned(PackedSequence(data=3))] == [3]
