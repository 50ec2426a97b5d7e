"""Right ports of nets that return, hold or get unusual things agree; wrong ones of the same differ."""

import functools
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, NamedTuple

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.parity.show.table import table
from small_nets import Theirs, draw, labels, ladder_of, ours, recording_of, t, theirs, torch, vector

pytestmark = pytest.mark.usefixtures("device")


class Pair(NamedTuple):
    reference: Callable[[], t.Module]
    port: Callable[[bool], nn.Cell]  # right, or with a fault
    batch: Callable[[], Any] = vector
    losses: Any = MappingProxyType({})


def chosen(fault):
    def construct(self, x):
        logits = self.head(self.part(x))
        if self.training:
            return logits
        scores = ops.sigmoid(logits)
        return ops.masked_select(scores, scores > (0.6 if fault else 0.5))

    return ours(construct, nn.Dense(8, 8))


def reference_that_chooses():
    def forward(self, x):
        logits = self.head(self.part(x))
        if self.training:
            return logits
        scores = logits.sigmoid()
        return scores.masked_select(scores > 0.5)

    return theirs(forward, t.Linear(8, 8))


def centred(fault):
    def construct(self, x):
        if self.training:
            mean = ops.stop_gradient(x).mean()
            kept = 0.8 if fault else 0.9
            ops.assign(self.running_mean, kept * self.running_mean + 0.1 * mean)
        return self.head(x - self.running_mean)

    number = Parameter(Tensor(0.0, mindspore.float32), requires_grad=False)
    return ours(construct, running_mean=number)


def reference_that_centres():
    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.running_mean.mul_(0.9).add_(0.1 * x.mean())
        return self.head(x - self.running_mean)

    return theirs(forward, running_mean=t.Buffer(torch.zeros(())))


def experts(fault):
    def construct(self, x):
        scores = ops.softmax(self.gate(x), -1)
        best = scores.argmax(1)
        made = ops.stack([expert(x) for expert in self.part])
        kept = (best == ops.arange(2).reshape(2, 1)).astype(x.dtype)
        weight = 1.0 if fault else ops.amax(scores, 1)
        return self.head(
            (made * kept.expand_dims(2)).sum(0) * ops.reshape(weight * kept.sum(0), (-1, 1))
        )

    return ours(construct, nn.Dense(8, 8), nn.Dense(8, 8), gate=nn.Dense(8, 2))


def reference_with_experts():
    def forward(self, x):
        scores = self.gate(x).softmax(-1)
        weight, best = scores.max(1)
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.part):
            rows = best == index
            out[rows] = expert(x[rows])
        return self.head(out * weight[:, None])

    return theirs(forward, t.Linear(8, 8), t.Linear(8, 8), gate=t.Linear(8, 2))


def float_ids():
    return np.random.randint(1, 9, (6, 5)).astype(np.float32), labels(6)


def saturated():
    return 20 * draw(6, 8), (draw(6, 3) > 0).astype(np.float32)


def tiny(self, x):
    return self.head(x + self.part(x) * 1e-36)


def compiled():
    return torch.compile(Theirs(t.Linear(8, 8)), backend="eager")


PAIRS = {
    "outputs of another size in each batch": Pair(reference_that_chooses, chosen),
    "a statistic that is one number": Pair(reference_that_centres, centred),
    "ids that are calculated": Pair(
        lambda: theirs(
            lambda self, ids: self.head(self.part((ids - 1).long()).mean(1)), t.Embedding(9, 8)
        ),
        lambda fault: ours(
            lambda self, ids: self.head(
                self.part((ids - (0 if fault else 1)).astype(mindspore.int32)).mean(1)
            ),
            nn.Embedding(9, 8),
        ),
        float_ids,
    ),
    "gradients near float32's smallest number": Pair(
        lambda: theirs(tiny, t.Linear(8, 8)),
        lambda fault: ours(lambda self, x: tiny(self, x) * (1.01 if fault else 1), nn.Dense(8, 8)),
    ),
    "experts that get a part of the batch": Pair(reference_with_experts, experts),
    "a loss that rejects what noise may make of 1": Pair(
        lambda: theirs(lambda self, x: self.head(self.part(x)).sigmoid(), t.Linear(8, 8)),
        lambda fault: ours(
            lambda self, x: ops.sigmoid(self.head(self.part(x)) * (1.01 if fault else 1)),
            nn.Dense(8, 8),
        ),
        saturated,
        {"reference_loss": t.functional.binary_cross_entropy, "loss": ops.binary_cross_entropy},
    ),
    "a reference under torch.compile": Pair(
        compiled,
        lambda fault: ours(
            lambda self, x: self.head(self.part(x) * (1.01 if fault else 1)), nn.Dense(8, 8)
        ),
    ),
}


@functools.cache
def recorded(name):
    pair = PAIRS[name]
    batches = [pair.batch() for _ in range(2)]
    return recording_of(pair.reference(), batches, pair.losses.get("reference_loss"))


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("name", PAIRS)
def test_right_ports_of_unusual_nets_alone_agree(name, wrong):
    pair = PAIRS[name]
    ladder = ladder_of(pair.port(wrong), recorded(name), loss=pair.losses.get("loss"))
    assert ladder.agrees == (not wrong), table(ladder)
    assert bool(ladder.first_stage) == wrong, table(ladder)


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
@pytest.mark.parametrize("fault", [False, True])
def test_a_reference_in_half_is_compared_in_float32(half, fault):
    """With a buffer that is not saved, which NumPy has to read, too."""

    def forward(self, x):
        return self.head(self.part(x.to(self.scale.dtype)) * self.scale)

    module = theirs(forward, t.Linear(8, 8))
    module.register_buffer("scale", torch.full((8,), 0.5), persistent=False)
    module.to(getattr(torch, half))
    net = ours(lambda self, x: self.head(self.part(x) * (0.6 if fault else 0.5)), nn.Dense(8, 8))
    ladder = ladder_of(net, module, [vector(), vector()], quick=False)
    assert ladder.agrees != fault, table(ladder)
    line = f"the reference's {half} arrays become float32; how it runs in {half} is not compared"
    assert line in ladder.changes


def test_layers_may_return_bfloat16():
    """As in `torch.autocast`: its rounding is a wide bound, which the verdict names."""

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            return self.head(self.part(x)).float()

    net = ours(lambda self, x: self.head(self.part(x)), nn.Dense(8, 8))
    ladder = ladder_of(net, theirs(forward, t.Linear(8, 8)), [vector()])
    assert ladder.agrees
    assert "arrays pass by a bound above 0.001" in table(ladder)
