"""Right ports of nets that return, hold or get unusual things agree; wrong ones of the same differ."""

import functools
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, NamedTuple

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.parity.trace.source import Recorded
from small_nets import (
    draw,
    labels,
    ladder_of,
    ours,
    recording_of,
    t,
    table,
    theirs,
    torch,
    vector,
)

pytestmark = pytest.mark.usefixtures("device")


class Pair(NamedTuple):
    reference: Callable[[], t.Module]
    port: Callable[[str], nn.Cell]  # "" or a fault
    fault: str
    batch: Callable[[], Any] = vector
    losses: Any = MappingProxyType({})


def chosen(fault: str) -> nn.Cell:
    def construct(self: Any, x: Tensor) -> Tensor:
        logits = self.head(self.part(x))
        if self.training:
            return logits
        scores = ops.sigmoid(logits)
        return ops.masked_select(scores, scores > (0.6 if fault else 0.5))

    return ours(construct, nn.Dense(8, 8))


def reference_that_chooses() -> t.Module:
    def forward(self: Any, x: Any) -> Any:
        logits = self.head(self.part(x))
        if self.training:
            return logits
        scores = logits.sigmoid()
        return scores.masked_select(scores > 0.5)

    return theirs(forward, t.Linear(8, 8))


class Centre(nn.Cell):
    """A statistic that is one number."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.running_mean = Parameter(Tensor(0.0, mindspore.float32), requires_grad=False)
        self.kept = 0.8 if fault else 0.9

    def construct(self, x: Tensor) -> Tensor:
        if self.training:
            mean = ops.stop_gradient(x).mean()
            ops.assign(self.running_mean, self.kept * self.running_mean + 0.1 * mean)
        return x - self.running_mean


class TheirCentre(t.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        if self.training:
            with torch.no_grad():
                self.running_mean.mul_(0.9).add_(0.1 * x.mean())
        return x - self.running_mean


def _centred(self: Any, x: Any) -> Any:
    return self.head(self.part(x))


def embedded(fault: str) -> nn.Cell:
    def construct(self: Any, ids: Tensor) -> Tensor:
        return self.head(self.part((ids - (0 if fault else 1)).astype(mindspore.int32)).mean(1))

    return ours(construct, nn.Embedding(9, 8))


def reference_that_embeds() -> t.Module:
    return theirs(
        lambda self, ids: self.head(self.part((ids - 1).long()).mean(1)), t.Embedding(9, 8)
    )


def float_ids() -> Any:
    return np.random.randint(1, 9, (6, 5)).astype(np.float32), labels(6)


def experts(fault: str) -> nn.Cell:
    def construct(self: Any, x: Tensor) -> Tensor:
        scores = ops.softmax(self.gate(x), -1)
        best = scores.argmax(1)
        made = ops.stack([expert(x) for expert in self.part])
        kept = (best == ops.arange(2).reshape(2, 1)).astype(x.dtype)
        weight = 1.0 if fault else ops.amax(scores, 1)
        return self.head(
            (made * kept.expand_dims(2)).sum(0) * ops.reshape(weight * kept.sum(0), (-1, 1))
        )

    return ours(construct, nn.Dense(8, 8), nn.Dense(8, 8), gate=nn.Dense(8, 2))


def reference_with_experts() -> t.Module:
    def forward(self: Any, x: Any) -> Any:
        scores = self.gate(x).softmax(-1)
        weight, best = scores.max(1)
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.part):
            rows = best == index
            out[rows] = expert(x[rows])
        return self.head(out * weight[:, None])

    return theirs(forward, t.Linear(8, 8), t.Linear(8, 8), gate=t.Linear(8, 2))


def saturated() -> Any:
    return 20 * draw(6, 8), (draw(6, 3) > 0).astype(np.float32)


PAIRS = {
    "outputs of another size in each batch": Pair(reference_that_chooses, chosen, "threshold"),
    "a statistic that is one number": Pair(
        lambda: theirs(_centred, TheirCentre()),
        lambda fault: ours(_centred, Centre(fault)),
        "momentum",
    ),
    "ids that are calculated": Pair(reference_that_embeds, embedded, "no shift", float_ids),
    "gradients near float32's smallest number": Pair(
        lambda: theirs(lambda self, x: self.head(x + self.part(x) * 1e-36), t.Linear(8, 8)),
        lambda fault: ours(
            lambda self, x: self.head(x + self.part(x) * 1e-36) * (1.01 if fault else 1),
            nn.Dense(8, 8),
        ),
        "factor",
    ),
    "experts that get a part of the batch": Pair(reference_with_experts, experts, "weight"),
    "a loss that rejects what noise may make of 1": Pair(
        lambda: theirs(lambda self, x: self.head(self.part(x)).sigmoid(), t.Linear(8, 8)),
        lambda fault: ours(
            lambda self, x: ops.sigmoid(self.head(self.part(x)) * (1.01 if fault else 1)),
            nn.Dense(8, 8),
        ),
        "factor",
        saturated,
        {"reference_loss": t.functional.binary_cross_entropy, "loss": ops.binary_cross_entropy},
    ),
    "a reference under torch.compile": Pair(
        lambda: torch.compile(theirs(_centred, t.Linear(8, 8)), backend="eager"),
        lambda fault: ours(
            lambda self, x: self.head(self.part(x) * (1.01 if fault else 1)), nn.Dense(8, 8)
        ),
        "factor",
    ),
}


@functools.cache
def recorded(name: str) -> Recorded:
    pair = PAIRS[name]
    batches = [pair.batch() for _ in range(2)]
    return recording_of(pair.reference(), batches, pair.losses.get("reference_loss"))


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("name", PAIRS)
def test_right_ports_of_unusual_nets_alone_agree(name: str, wrong: bool) -> None:
    pair = PAIRS[name]
    net = pair.port(pair.fault if wrong else "")
    ladder = ladder_of(net, recorded(name), loss=pair.losses.get("loss"))
    assert ladder.agrees == (not wrong), table(ladder)
    assert bool(ladder.first_stage) == wrong, table(ladder)
