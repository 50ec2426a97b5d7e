"""Right ports of a net of each kind, under other names, are matched by structure and agree, with probes."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from resnet_fn.parity.trace import Batch
from small_nets import ADAMW, SGD, Pair, Theirs, agrees, draw, labels, ones, ours, t, theirs, torch

F = torch.nn.functional
pytestmark = pytest.mark.usefixtures("device")

PLACES = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)
CLIPPED = dataclasses.replace(SGD, clip_norm=0.5)


class ConvNeXtBlock(t.Module):
    def __init__(self):
        super().__init__()
        self.dwconv, self.norm = t.Conv2d(8, 8, 7, padding=3, groups=8), t.LayerNorm(8, eps=1e-6)
        self.pwconv1, self.act, self.pwconv2 = t.Linear(8, 32), t.GELU(), t.Linear(32, 8)
        self.gamma = t.Parameter(torch.full((8,), 0.5))

    def forward(self, x):
        out = self.norm(self.dwconv(x).permute(0, 2, 3, 1))
        return x + (self.gamma * self.pwconv2(self.act(self.pwconv1(out)))).permute(0, 3, 1, 2)


class PortedConvNeXtBlock(nn.Cell):
    """Dense layers as convolutions of one pixel, channels last inside the norm only."""

    def __init__(self):
        super().__init__()
        self.depth, self.ln = nn.Conv2d(8, 8, 7, group=8, has_bias=True), nn.LayerNorm((8,), epsilon=1e-6)
        self.wide, self.narrow = nn.Conv2d(8, 32, 1, has_bias=True), nn.Conv2d(32, 8, 1, has_bias=True)
        self.gelu, self.scale = nn.GELU(approximate=False), ones(8)

    def construct(self, x):
        out = self.ln(self.depth(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return x + self.scale.reshape(1, -1, 1, 1) * self.narrow(self.gelu(self.wide(out)))


class Tied(t.Module):
    """Token ids and a padding mask; the output layer shares the embedding's weight."""

    def __init__(self):
        super().__init__()
        self.embed = t.Embedding(11, 8, padding_idx=0)
        self.register_buffer("positions", torch.from_numpy(PLACES))
        self.attn, self.norm = t.MultiheadAttention(8, 2, batch_first=True), t.LayerNorm(8)
        self.lstm, self.head = t.LSTM(8, 4, bidirectional=True, batch_first=True), t.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids, mask):
        x = self.embed(ids) + self.positions
        x = self.norm(x + self.attn(x, x, x, key_padding_mask=~mask)[0])
        return self.head((self.lstm(x)[0] * mask[..., None]).sum(1))


class PortedTied(nn.Cell):
    def __init__(self):
        super().__init__()
        self.table, self.places = nn.Embedding(11, 8, padding_idx=0), Tensor(PLACES)
        self.mixer, self.ln = nn.MultiheadAttention(8, 2, batch_first=True), nn.LayerNorm((8,), epsilon=1e-5)
        self.rnn, self.out = nn.LSTM(8, 4, bidirectional=True, batch_first=True), nn.Dense(8, 11, has_bias=False)
        self.out.weight = self.table.embedding_table

    def construct(self, ids, mask):
        x = self.table(ids) + self.places
        x = self.ln(x + self.mixer(x, x, x, key_padding_mask=ops.logical_not(mask))[0])
        return self.out((self.rnn(x)[0] * mask.expand_dims(-1)).sum(1))


class UNet(t.Module):
    def __init__(self):
        super().__init__()
        self.enter = t.Sequential(t.Conv2d(3, 6, 3, padding=1), t.GroupNorm(2, 6), t.SiLU())
        self.down, self.norm = t.Conv2d(6, 12, 3, 2, 1), t.InstanceNorm2d(12, affine=True)
        self.up, self.small = t.ConvTranspose2d(12, 6, 3, 2, 1, output_padding=1), t.Conv2d(12, 6, 1)
        self.larger = t.Upsample(scale_factor=2, mode="bilinear")
        self.act, self.leave = t.PReLU(18), t.Conv2d(18, 2, 3, padding=1)

    def forward(self, x):
        x = self.enter(x)
        low = self.norm(self.down(x))
        return self.leave(self.act(torch.cat([x, self.up(low), self.larger(self.small(low))], 1)))


class PortedUNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 6, 3, has_bias=True), nn.GroupNorm(2, 6)
        self.c, self.d = nn.Conv2d(6, 12, 3, 2, pad_mode="pad", padding=1, has_bias=True), nn.GroupNorm(12, 12)
        self.e = nn.Conv2dTranspose(12, 6, 3, 2, pad_mode="pad", padding=(1, 0, 1, 0), has_bias=True)
        self.f, self.h = nn.Conv2d(12, 6, 1, has_bias=True), nn.PReLU(18)
        scale = {"scale_factor": (2.0, 2.0), "recompute_scale_factor": True}
        self.g = nn.Upsample(**scale, mode="bilinear", align_corners=False)
        self.i = nn.Conv2d(18, 2, 3, has_bias=True)

    def construct(self, x):
        x = ops.silu(self.b(self.a(x)))
        low = self.d(self.c(x))
        return self.i(self.h(ops.cat([x, self.e(low), self.g(self.f(low))], 1)))


class PortedCentred(nn.Cell):
    """A layer norm by hand: its class is no norm's, whose weight a recipe would decay."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = ones(8), ones(8)

    def construct(self, x: Tensor) -> Tensor:
        x = x - x.mean(-1, keep_dims=True)
        return x / ops.sqrt((x * x).mean(-1, keep_dims=True) + 1e-5) * self.weight + self.bias


class Other(nn.Cell):
    """`Theirs` under other names."""

    def __init__(self, *layers: nn.Cell) -> None:
        super().__init__()
        self.layers, self.last = nn.SequentialCell(*layers), nn.Dense(8, 3)

    def construct(self, x: Tensor) -> Tensor:
        x = self.layers(x)
        return self.last(x if x.ndim == 2 else x.mean((2, 3)) if x.ndim == 4 else x.mean(1))


class Repeated(Other):
    """One block three times, under one name."""

    def construct(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = self.layers(x)
        return self.last(x)


class Heads(t.Module):
    """Classes, and in training boxes, which have not the batch first."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.classes, self.boxes = t.Linear(8, 8), t.Linear(8, 3), t.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        x = torch.tanh(self.body(x))
        return (self.classes(x), self.boxes(x).T) if self.training else self.classes(x)


class PortedHeads(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.which, self.where = nn.Dense(8, 8), nn.Dense(8, 3), nn.Dense(8, 4)

    def construct(self, x: Tensor) -> Any:
        x = ops.tanh(self.first(x))
        return (self.which(x), self.where(x).T) if self.training else self.which(x)


def heads_loss(outputs: Any, targets: Any) -> Tensor:
    boxes = ops.smooth_l1_loss(outputs[1].T, targets[1], reduction="mean")
    return (ops.cross_entropy(outputs[0], targets[0]) + boxes).reshape((1,))


def reference_heads_loss(outputs: Any, targets: Any) -> Any:
    boxes = F.smooth_l1_loss(outputs[1].T, targets[1])
    return (F.cross_entropy(outputs[0], targets[0].long()) + boxes).reshape(1)


def squares(outputs: Tensor, images: Tensor) -> Tensor:
    return ((outputs - images) ** 2).mean()


def frozen(net: Any) -> Any:
    """All but the last layer."""
    named = net.named_parameters() if isinstance(net, t.Module) else net.parameters_and_names()
    for name, parameter in named:
        parameter.requires_grad = name.startswith(("head", "last"))
    return net


def block() -> Any:
    return t.Sequential(t.Linear(8, 8), t.BatchNorm1d(8), t.Sigmoid())


def ported_block() -> nn.Cell:
    return nn.SequentialCell(nn.Dense(8, 8), nn.BatchNorm1d(8), nn.Sigmoid())


def groups(last: Any, first: Any) -> list[dict[str, Any]]:
    return [{"params": last, "lr": 0.05, "weight_decay": 0.1}, {"params": first, "lr": 0.1}]


def their_groups(module: Any) -> Any:
    return torch.optim.SGD(groups(module.head.parameters(), module.part.parameters()), 0.1, 0.9, nesterov=True)


def our_groups(net: Any) -> nn.Optimizer:
    return nn.SGD(groups(net.last.trainable_params(), net.layers.trainable_params()), 0.1, 0.9, nesterov=True)


def vectors() -> Batch:
    return draw(6, 8), labels(6)


def images() -> Batch:
    return draw(4, 3, 8, 8), labels(4)


def pixels() -> Batch:
    return draw(2, 3, 16, 16), labels(2)


def masked() -> Batch:
    mask = np.array([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]], bool)
    return {"ids": np.random.randint(1, 11, (2, 6)).astype(np.int32), "mask": mask}, labels(2)


VECTORS = (vectors, lambda: Theirs(t.Linear(8, 8), t.Tanh()), lambda: Other(nn.Dense(8, 8), nn.Tanh()))
PAIRS = {
    "convolution and BatchNorm": Pair(
        images,
        lambda: Theirs(t.Conv2d(3, 8, 3, padding=1, bias=False), t.BatchNorm2d(8), t.ReLU(), t.MaxPool2d(2)),
        lambda: Other(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2, 2)),
        CLIPPED,
    ),
    "a bias before BatchNorm, which drifts under Adam": Pair(
        lambda: (draw(8, 3, 8, 8), labels(8)),
        lambda: Theirs(t.Conv2d(3, 8, 3, padding=1), t.BatchNorm2d(8), t.ReLU()),
        lambda: Other(nn.Conv2d(3, 8, 3, has_bias=True), nn.BatchNorm2d(8), nn.ReLU()),
        ADAMW,
        {"accumulate": 4},
        updates=5,
    ),
    "ConvNeXt": Pair(
        pixels,
        lambda: Theirs(t.Conv2d(3, 8, 4, 4), ConvNeXtBlock(), ConvNeXtBlock()),
        lambda: Other(
            nn.Conv2d(3, 8, 4, 4, pad_mode="valid", has_bias=True), PortedConvNeXtBlock(), PortedConvNeXtBlock()
        ),
        ADAMW,
    ),
    "UNet": Pair(
        lambda: (draw(2, 3, 16, 16), draw(2, 2, 16, 16)),
        UNet,
        PortedUNet,
        options={"loss": squares, "reference_loss": F.mse_loss},
    ),
    "text, attention, tied weights": Pair(masked, Tied, PortedTied, options={"mode": "pynative"}),
    "other outputs in training, a loss of shape [1]": Pair(
        lambda: (draw(6, 8), (labels(6), draw(6, 4))),
        Heads,
        PortedHeads,
        options={"loss": heads_loss, "reference_loss": reference_heads_loss, "accumulate": 2},
    ),
    "frozen body": Pair(
        images,
        lambda: frozen(Theirs(t.Conv2d(3, 8, 3, padding=1), t.ReLU())),
        lambda: frozen(Other(nn.Conv2d(3, 8, 3, has_bias=True), nn.ReLU())),
    ),
    "one direction": Pair(
        lambda: (draw(4, 3, 16), labels(4)),
        lambda: Theirs(t.Conv1d(3, 8, 3, padding=1), t.LeakyReLU(0.1), t.AvgPool1d(2)),
        lambda: Other(nn.Conv1d(3, 8, 3, has_bias=True), nn.LeakyReLU(0.1), nn.AvgPool1d(2, 2)),
    ),
    "a layer norm ported by hand": Pair(
        vectors, lambda: Theirs(t.Linear(8, 8), t.LayerNorm(8)), lambda: Other(nn.Dense(8, 8), PortedCentred()), ADAMW
    ),
    "one block under three names": Pair(vectors, lambda: Theirs(*[block()] * 3), lambda: Other(*[ported_block()] * 3)),
    "one block under three names, and under one": Pair(
        vectors, lambda: Theirs(*[block()] * 3), lambda: Repeated(ported_block())
    ),
    "MindSpore's SGD, groups in another order": Pair(
        *VECTORS, options={"reference_optimizer": their_groups}, optimizer=our_groups
    ),
    "MindSpore's Momentum": Pair(
        *VECTORS,
        options={"reference_optimizer": lambda m: torch.optim.SGD(m.parameters(), 0.1, 0.9, weight_decay=0.1)},
        optimizer=lambda net: nn.Momentum(net.trainable_params(), 0.1, 0.9, weight_decay=0.1),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_right_port_agrees(name):
    net, ladder = PAIRS[name].climb(quick=False, mode="graph")
    assert (ladder.notes, ladder.names.how) == ([], "execution order and shapes")
    assert set(ladder.names.parameters) == set(dict(net.parameters_and_names()))
    assert max(item.output.relative for item in ladder.layers) < 1e-4
    compared = [stage.name for stage in ladder.stages if stage.verdict != "skipped"]
    assert {"weights", "eval forward", "loss", "gradients", "change by update 1"} <= set(compared)


def test_an_attentions_projections_are_paired_by_their_names_whatever_their_order():
    def construct(net, x):
        k, q, v = net.key(x), net.query(x), net.value(x)
        return net.head(q + 2 * k + 3 * v)

    projections = {f"to_{one}": t.Linear(8, 8) for one in "qkv"}
    module = theirs(lambda net, x: net.head(net.to_q(x) + 2 * net.to_k(x) + 3 * net.to_v(x)), t.ReLU(), **projections)
    net = ours(construct, nn.ReLU(), **{name: nn.Dense(8, 8) for name in ("query", "key", "value")})
    agrees(net, module, [(draw(4, 8), labels(4))])
