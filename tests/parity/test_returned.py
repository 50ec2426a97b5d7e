"""What a net returns is compared in its own type: objects, numbers, texts, integers, booleans and
complex numbers.
"""

import dataclasses
import functools
import shlex
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
from resnet_fn.parity.trace.source import Recorded
from resnet_fn.parity.trace.stages import EVAL_FORWARD
from small_nets import draw, labels, ladder_of, recording_of, torch, write_net

t = torch.nn

Pair = namedtuple("Pair", "logits extra")


@dataclasses.dataclass
class Output:
    logits: Any
    extra: Any


class Box:
    """An object with slots, as some detectors have it."""

    __slots__ = ("extra", "logits")

    def __init__(self, logits: Any, extra: Any) -> None:
        self.logits, self.extra = logits, extra


class Theirs(t.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.head = kind, t.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        h, kind = self.head(x), self.kind
        few = h if self.training else h[h > 0]
        return {
            "list": lambda: [h, 2 * h],
            "object": lambda: SimpleNamespace(logits=h, extra=2 * h),
            "slots": lambda: Box(h, 2 * h),
            "nested": lambda: Output(h, [{"a": Pair(h, 2 * h)}]),
            "item": lambda: Output(h, h.sum().item()),
            "array": lambda: Output(h, h.detach().numpy()),
            "text": lambda: Output(h, [f"class {int(one)}" for one in h.argmax(1)]),
            "ids": lambda: Output(h, h.argmax(1) + 100_000),
            "bool": lambda: Output(h, h > 0),
            "complex": lambda: Output(h, torch.complex(h, 2 * h)),
            "parts": lambda: Output(h, torch.complex(h, 2 * h)),
            "few": lambda: Output(h, few),
            "always few": lambda: Output(h, h[h > 0]),
            "generator": lambda: Output(h, (one for one in h)),
            "rounded": lambda: Output(h, (1e7 * h).round().long()),
            "many": lambda: [h, h.argmax(1) + 100_000, h > 0, torch.complex(h, 2 * h), few],
        }[kind]()


class Ours(nn.Cell):
    def __init__(self, kind: str, wrong: bool = False) -> None:
        super().__init__()
        self.kind, self.wrong, self.head = kind, wrong, nn.Dense(8, 3)
        self.times = 2.5 if wrong else 2.0
        self.imag = ops.Complex()

    def construct(self, x: Any) -> Any:
        h, wrong = self.head(x), self.wrong
        two = self.times * h
        return {
            "list": lambda: [h, two],
            "object": lambda: SimpleNamespace(logits=h, extra=two),
            "slots": lambda: Box(h, two),
            "nested": lambda: Output(h, [{"a": Pair(h, two)}]),
            "item": lambda: Output(h, (two - h).sum().item()),
            "array": lambda: Output(h, (two - h).asnumpy()),
            "text": lambda: Output(h, [f"class {one}" for one in self.classes(h)]),
            "ids": lambda: Output(h, h.argmax(1) + 100_000 + int(wrong)),
            "bool": lambda: Output(h, h > 0.1 * wrong),
            "complex": lambda: Output(h, self.imag(h, two)),
            "parts": lambda: Output(h, ops.stack([h, two], -1)),
            "few": lambda: Output(h, h if self.training else self.few(h)),
            "always few": lambda: Output(h, self.few(h)),
            "generator": lambda: Output(h, h),
            "rounded": lambda: Output(h, ops.round(1e7 * h).astype(mindspore.int64)),
        }[self.kind]()

    def few(self, h: Any) -> Any:
        return ops.masked_select(h, h > 0.1 * self.wrong)

    def classes(self, h: Any) -> Any:
        return (h.argmin(1) if self.wrong else h.argmax(1)).tolist()


class Compiled(Ours):
    """Returns a tuple: MindSpore does not train through an object in graph mode."""

    def construct(self, x: Any) -> Any:
        h = self.head(x)
        if self.kind == "always few":
            return h, self.few(h)
        ids, positive = h.argmax(1) + 100_000 + int(self.wrong), h > 0.1 * self.wrong
        few = h if self.training else self.times / 2 * ops.masked_select(h, h > 0)
        return h, ids, positive, self.imag(h, self.times * h), few


@functools.cache
def recorded(kind: str) -> Recorded:
    return recording_of(Theirs(kind), [(draw(6, 8), labels(6)) for _ in range(2)], their_loss)


def compared(kind: str, wrong: bool = False, mode: str = "pynative") -> Any:
    net = Compiled(kind, wrong) if mode == "graph" else Ours(kind, wrong)
    loss = list_loss if kind == "list" or mode == "graph" else our_loss
    return ladder_of(net, recorded(kind), mode=mode, loss=loss)


def their_loss(outputs: Any, y: Any) -> Any:
    logits = outputs[0] if isinstance(outputs, list) else outputs.logits
    return t.functional.cross_entropy(logits, y.long())


def our_loss(outputs: Any, y: Any) -> Any:
    return ops.cross_entropy(outputs.logits, y)


def list_loss(outputs: Any, y: Any) -> Any:
    return ops.cross_entropy(outputs[0], y)


UNCOMPILED = ["slots", "item", "array", "text", "always few"]

BOTH = shlex.split("list object nested ids bool complex parts few")


@pytest.mark.parametrize("kind", [*UNCOMPILED, *BOTH])
@pytest.mark.parametrize("wrong", [False, True])
def test_what_a_net_returns_is_compared(kind, wrong):
    ladder = compared(kind, wrong)
    if wrong:
        assert "forward" in ladder.first_stage.id.name, table(ladder)
    else:
        assert ladder.agrees, table(ladder)


@pytest.mark.parametrize("kind", ["many", "always few"])
@pytest.mark.parametrize("wrong", [False, True])
def test_a_compiled_net_s_outputs_are_compared(kind, wrong):
    ladder = compared(kind, wrong, "graph")
    assert (ladder.first_stage is not None) == wrong, table(ladder)
    assert ladder.agrees != wrong
    if kind == "many" and wrong:
        (stage,) = (one for one in ladder.stages if one.id == EVAL_FORWARD)
        differ = [item.name for item in stage.differences if item.verdict == DIFFERS]
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
    write_net(
        "theirs.py",
        "torch",
        "self.head = nn.Linear(48, 10)",
        body.format(1, "(one for one in x)"),
    )
    write_net("ours.py", "mindspore", "self.head = nn.Dense(48, 10)", body.format(factor, "x"))
    words = "--reference theirs.py:Net --net ours.py:Net --image-size 4 --steps 1 --quick"
    assert main([*words.split(), "--no-initialisation", "--mode=pynative"]) == code


def test_a_custom_class_may_be_named_packed_sequence():
    @dataclasses.dataclass
    class PackedSequence:
        data: Any

    assert [leaf for _, leaf in returned(PackedSequence(data=3))] == [3]
