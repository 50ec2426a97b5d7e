"""Right ports agree: of a net of each kind, under other names, and of what was accused, rejected or
crashed before.
"""

import collections
import dataclasses
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, mint, nn, ops
from mindspore.experimental import optim as experimental

from resnet_fn.parity.ladder import Ladder
from resnet_fn.parity.pair.map_file import read_map
from resnet_fn.parity.show.table import table
from resnet_fn.parity.show.titles import doubt_of, title_of_stage
from resnet_fn.parity.trace.tree import Batch
from small_nets import (
    ADAMW,
    SGD,
    DropPath,
    Ours,
    Pair,
    PortedPath,
    Theirs,
    agrees,
    cell,
    draw,
    images,
    labels,
    ladder_of,
    module,
    ones,
    ours,
    stage_of,
    t,
    theirs,
    torch,
    vector,
)

F = torch.nn.functional
pytestmark = pytest.mark.usefixtures("device")


PLACES = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)
CLIPPED = dataclasses.replace(SGD, clip_norm=0.5)


Named = collections.namedtuple("Named", "best hidden logits")


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
        self.depth, self.ln = (
            nn.Conv2d(8, 8, 7, group=8, has_bias=True),
            nn.LayerNorm((8,), epsilon=1e-6),
        )
        self.wide, self.narrow = (
            nn.Conv2d(8, 32, 1, has_bias=True),
            nn.Conv2d(32, 8, 1, has_bias=True),
        )
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
        self.lstm, self.head = (
            t.LSTM(8, 4, bidirectional=True, batch_first=True),
            t.Linear(8, 11, bias=False),
        )
        self.head.weight = self.embed.weight

    def forward(self, ids, mask):
        x = self.embed(ids) + self.positions
        x = self.norm(x + self.attn(x, x, x, key_padding_mask=~mask)[0])
        return self.head((self.lstm(x)[0] * mask[..., None]).sum(1))


class PortedTied(nn.Cell):
    def __init__(self):
        super().__init__()
        self.table, self.places = nn.Embedding(11, 8, padding_idx=0), Tensor(PLACES)
        self.mixer, self.ln = (
            nn.MultiheadAttention(8, 2, batch_first=True),
            nn.LayerNorm((8,), epsilon=1e-5),
        )
        self.rnn, self.out = (
            nn.LSTM(8, 4, bidirectional=True, batch_first=True),
            nn.Dense(8, 11, has_bias=False),
        )
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
        self.up, self.small = (
            t.ConvTranspose2d(12, 6, 3, 2, 1, output_padding=1),
            t.Conv2d(12, 6, 1),
        )
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
        self.c, self.d = (
            nn.Conv2d(6, 12, 3, 2, pad_mode="pad", padding=1, has_bias=True),
            nn.GroupNorm(12, 12),
        )
        self.e = nn.Conv2dTranspose(
            12, 6, 3, 2, pad_mode="pad", padding=(1, 0, 1, 0), has_bias=True
        )
        self.f, self.h = nn.Conv2d(12, 6, 1, has_bias=True), nn.PReLU(18)
        scale = {"scale_factor": (2.0, 2.0), "recompute_scale_factor": True}
        self.g = nn.Upsample(**scale, mode="bilinear", align_corners=False)
        self.i = nn.Conv2d(18, 2, 3, has_bias=True)

    def construct(self, x):
        x = ops.silu(self.b(self.a(x)))
        low = self.d(self.c(x))
        return self.i(self.h(ops.cat([x, self.e(low), self.g(self.f(low))], 1)))


def centred(self: Any, x: Tensor) -> Tensor:
    """A layer norm by hand: its class is no norm's, whose weight a recipe would decay."""
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


class Padded(Other):
    def construct(self, x: Tensor) -> Tensor:
        return super().construct(ops.pad(x, (1,) * 4))


class Repeated(Other):
    """One block three times, under one name."""

    def construct(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = self.layers(x)
        return self.last(x)


def heads(self: Any, x: Any) -> Any:
    """Classes, and in training boxes, which have not the batch first."""
    x = self.part(x)
    return (self.head(x), self.boxes(x).T) if self.training else self.head(x)


def ported_heads(self: Any, x: Tensor) -> Any:
    x = self.part(x)
    return (self.head(x), self.where(x).T) if self.training else self.head(x)


def residual(self: Any, x: Any) -> Any:
    """The shortcut's convolution has the shape of the last one."""
    x = torch.relu(self.norm(self.first(x)))
    out = self.inner_norm(self.inner(torch.relu(x - 0.1)))
    return self.head(torch.relu(out + self.skip(x)).mean((2, 3)))


def ported_residual(self: Any, x: Tensor) -> Tensor:
    """The shortcut is computed first."""
    x = ops.relu(self.bn_a(self.stem(x)))
    short = self.short(x)
    x = self.bn_b(self.body(ops.relu(x - 0.1)))
    return self.head(ops.relu(x + short).mean((2, 3)))


def heads_loss(outputs: Any, targets: Any) -> Tensor:
    boxes = ops.smooth_l1_loss(outputs[1].T, targets[1], reduction="mean")
    return (ops.cross_entropy(outputs[0], targets[0]) + boxes).reshape((1,))


def reference_heads_loss(outputs: Any, targets: Any) -> Any:
    boxes = F.smooth_l1_loss(outputs[1].T, targets[1])
    return (F.cross_entropy(outputs[0], targets[0].long()) + boxes).reshape(1)


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


def in_groups(kind: Any, rate: float, *settings: Any, **named: Any) -> Callable[[Any], Any]:
    """An optimizer of two groups, which are in another order than the net's layers."""

    def make(net: Any) -> Any:
        if isinstance(net, t.Module):
            last, first = net.head.parameters(), net.part.parameters()
        else:
            last, first = net.last.trainable_params(), net.layers.trainable_params()
        groups = [
            {"params": last, "lr": rate / 2, "weight_decay": 0.1},
            {"params": first, "lr": rate},
        ]
        return kind(groups, rate, *settings, **named)

    return make


def masked() -> Batch:
    mask = np.array([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]], bool)
    return {"ids": np.random.randint(1, 11, (2, 6)).astype(np.int32), "mask": mask}, labels(2)


VECTORS = (
    vector,
    lambda: Theirs(t.Linear(8, 8), t.Tanh()),
    lambda: Other(nn.Dense(8, 8), nn.Tanh()),
)
PAIRS = {
    "convolution and BatchNorm": Pair(
        images,
        lambda: Theirs(
            t.Conv2d(3, 8, 3, padding=1, bias=False), t.BatchNorm2d(8), t.ReLU(), t.MaxPool2d(2)
        ),
        lambda: Other(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2, 2)),
        CLIPPED,
    ),
    "a residual block": Pair(
        images,
        lambda: theirs(
            residual,
            **{
                "first": t.Conv2d(3, 8, 3, padding=1),
                "norm": t.BatchNorm2d(8),
                "inner_norm": t.BatchNorm2d(8),
            },
            inner=t.Conv2d(8, 8, 3, padding=1, bias=False),
            skip=t.Sequential(t.Conv2d(8, 8, 3, padding=1, bias=False), t.BatchNorm2d(8)),
        ),
        lambda: ours(
            ported_residual,
            **{
                "stem": nn.Conv2d(3, 8, 3, has_bias=True),
                "bn_a": nn.BatchNorm2d(8),
                "bn_b": nn.BatchNorm2d(8),
            },
            short=nn.SequentialCell(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)),
            body=nn.Conv2d(8, 8, 3),
        ),
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
        lambda: (draw(2, 3, 16, 16), labels(2)),
        lambda: Theirs(t.Conv2d(3, 8, 4, 4), ConvNeXtBlock(), ConvNeXtBlock()),
        lambda: Other(
            nn.Conv2d(3, 8, 4, 4, pad_mode="valid", has_bias=True),
            PortedConvNeXtBlock(),
            PortedConvNeXtBlock(),
        ),
        ADAMW,
    ),
    "UNet": Pair(
        lambda: (draw(2, 3, 16, 16), draw(2, 2, 16, 16)),
        UNet,
        PortedUNet,
        options={"loss": ops.mse_loss, "reference_loss": F.mse_loss},
    ),
    "text, attention, tied weights": Pair(masked, Tied, PortedTied, options={"mode": "pynative"}),
    "other outputs in training, a loss of shape [1]": Pair(
        lambda: (draw(6, 8), (labels(6), draw(6, 4))),
        lambda: theirs(heads, t.Linear(8, 8), t.Tanh(), boxes=t.Linear(8, 4)),
        lambda: ours(ported_heads, nn.Dense(8, 8), nn.Tanh(), where=nn.Dense(8, 4)),
        options={"loss": heads_loss, "reference_loss": reference_heads_loss, "accumulate": 2},
    ),
    "padding in a function, a Hardtanh for a ReLU6, nothing for a dropout of 0": Pair(
        images,
        lambda: Theirs(t.Conv2d(3, 8, 3, padding=1), t.ReLU6(), t.Dropout(0.0)),
        lambda: Padded(
            nn.Conv2d(3, 8, 3, pad_mode="valid", has_bias=True),
            nn.Hardtanh(0.0, 6.0),
            nn.Identity(),
        ),
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
        vector,
        lambda: Theirs(t.Linear(8, 8), t.LayerNorm(8)),
        lambda: Other(nn.Dense(8, 8), cell(centred, weight=ones(8), bias=ones(8))),
        ADAMW,
    ),
    "one block under three names": Pair(
        vector, lambda: Theirs(*[block()] * 3), lambda: Other(*[ported_block()] * 3)
    ),
    "one block under three names, and under one": Pair(
        vector, lambda: Theirs(*[block()] * 3), lambda: Repeated(ported_block())
    ),
    "MindSpore's SGD, groups in another order": Pair(
        *VECTORS,
        options={"reference_optimizer": in_groups(torch.optim.SGD, 0.1, 0.9, nesterov=True)},
        optimizer=in_groups(nn.SGD, 0.1, 0.9, nesterov=True),
    ),
    "an experimental optimizer, in groups": Pair(
        *VECTORS,
        options={
            "reference_optimizer": in_groups(torch.optim.AdamW, 0.002, weight_decay=0.0),
            "mode": "pynative",
        },
        optimizer=in_groups(experimental.AdamW, 0.002, weight_decay=0.0),
        updates=3,
    ),
    "MindSpore's Momentum": Pair(
        *VECTORS,
        options={
            "reference_optimizer": lambda m: torch.optim.SGD(
                m.parameters(), 0.1, 0.9, weight_decay=0.1
            )
        },
        optimizer=lambda net: nn.Momentum(net.trainable_params(), 0.1, 0.9, weight_decay=0.1),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_right_port_of_each_kind_agrees(name):
    net, ladder = PAIRS[name].climb(quick=False, mode="graph")
    assert (ladder.settings, ladder.names.how) == ([], "execution order and shapes")
    assert set(ladder.names.parameters) == set(dict(net.parameters_and_names()))
    assert max(item.output.relative for item in ladder.layers) < 1e-4
    compared = [title_of_stage(stage) for stage in ladder.stages if stage.verdict != "skipped"]
    of_optimizer = {"optimizer settings", "optimizer alone"} if PAIRS[name].optimizer else set()
    assert {
        "weights",
        "eval forward",
        "loss",
        "gradients",
        "change by update 1",
        *of_optimizer,
    } <= set(compared)


def vectors(updates: int = 2) -> list[Batch]:
    return [vector() for _ in range(updates)]


def tokens() -> list[Batch]:
    return [(draw(4, 5, 8), labels(4))] * 2


def qkv(kind: Any) -> dict[str, Any]:
    return {name: kind(8, 8) for name in "qkv"}


def tiny(module: Any) -> Any:
    for parameter in module.parameters():
        t.init.normal_(parameter, std=0.01)
    return module


def ordinal(module: Any) -> Any:
    """K levels passed: labels are 0 … K."""

    def loss(logits: Any, labels: Any) -> Any:
        levels = module.arange(logits.shape[1]) < labels[:, None]
        levels = levels.float()
        return (logits.sigmoid() - levels).pow(2).mean()

    return loss


class PortedNorm(nn.Cell):
    """weight = g v / |v|; g is a view, on which no operation may write."""

    def __init__(self) -> None:
        super().__init__()
        start = Parameter(Tensor(np.ones((8, 8), np.float32)), name="start")
        self.weight_g = Parameter(Tensor(ops.norm(start.view((8, 8)), 2, 1).view((8, 1))))
        self.weight_v, self.bias = ones(8, 8), ones(8)

    def construct(self, x: Tensor) -> Tensor:
        weight = self.weight_g * self.weight_v / ops.sqrt((self.weight_v**2).sum(1, keepdims=True))
        return ops.matmul(x, weight.T) + self.bias


def noisy(self: Any, x: Tensor) -> Tensor:
    """A dense layer whose weight's gradient is off by 3e-5 of its size: some elements are smaller
    than that.
    """
    extra = (self.weight * NOISE).sum()
    return ops.matmul(x, self.weight.T) + self.bias + (extra - ops.stop_gradient(extra))


class NormAct(t.BatchNorm2d):
    """timm's BatchNormAct2d: a BatchNorm and the activation after it."""

    def __init__(self, act: Any) -> None:
        super().__init__(8)
        self.act = act

    def forward(self, x: Any) -> Any:
        return self.act(super().forward(x))


def norm_and_act() -> nn.Cell:
    return Ours(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), nn.ReLU())


def table_inside() -> Any:
    return module(
        lambda self, x: self.body(x) + self.table,
        table=t.Parameter(torch.ones(8)),
        body=t.Linear(8, 8),
    )


def table_apart() -> nn.Cell:
    """MindCV's Swin has the position table in a cell of its own, torchvision in the attention."""
    bias = cell(lambda self: self.table * 1.0, table=ones(8))
    return cell(lambda self, x: self.body(x) + self.bias(), bias=bias, body=nn.Dense(8, 8))


NOISE = Tensor(1e-5 * np.random.default_rng(1).normal(size=(8, 64)).astype(np.float32))
LEAST = Tensor(np.triu(np.full((10, 10), np.finfo(np.float32).min), 1))
ORDINAL = {"loss": ordinal(ops), "reference_loss": ordinal(torch)}
PORTS = {
    "a key bias under Adam: its gradient is 1e-10, its variance 1e-30, whose square is 0 in "
    "float32": Pair(
        lambda: (1e-2 * draw(4, 5, 8), labels(4)),
        lambda: tiny(
            theirs(
                lambda n, x: n.head(((n.q(x) @ n.k(x).mT).softmax(-1) @ n.v(x)).mean(1)),
                **qkv(t.Linear),
            )
        ),
        lambda: ours(
            lambda n, x: n.head(
                ops.bmm(ops.softmax(ops.bmm(n.q(x), n.k(x).swapaxes(1, 2)), -1), n.v(x)).mean(1)
            ),
            **qkv(nn.Dense),
        ),
        ADAMW,
    ),
    "elements whose gradient is rounding, of which Adam makes a change of the learning rate's size": Pair(
        lambda: (draw(6, 64) * np.where(np.arange(64) % 8, 1, 1e-6).astype(np.float32), labels(6)),
        lambda: Theirs(t.Linear(64, 8)),
        lambda: Ours(cell(noisy, weight=ones(8, 64), bias=ones(8))),
        ADAMW,
        updates=3,
    ),
    "inputs by name, which are no prefix": Pair(
        lambda: ({"types": draw(6, 8), "ids": draw(6, 8)}, labels(6)),
        lambda: theirs(
            lambda n, ids, mask=None, types=None, scale=0.5: n.head(scale * (ids + types))
        ),
        lambda: ours(
            lambda n, ids, mask=None, types=None, scale=0.5: n.head(scale * (ids + types))
        ),
    ),
    "sequence first, a scalar, and no labels": Pair(
        lambda: ((draw(5, 4, 8), np.array(0.5, np.float32)), None),
        lambda: theirs(lambda n, x, time: n.head((x * time).mean(0))),
        lambda: ours(lambda n, x, time: n.head((x * time).mean(0))),
        options=dict.fromkeys(("loss", "reference_loss"), lambda outputs, _: (outputs**2).mean()),
    ),
    "a graph: nodes and edges, of other numbers": Pair(
        lambda: ((draw(5, 8), np.random.randint(0, 5, (2, 7)).astype(np.int32)), labels(5)),
        lambda: theirs(
            lambda n, x, edges: n.head(x + torch.zeros_like(x).index_add(0, edges[1], x[edges[0]]))
        ),
        lambda: ours(
            lambda n, x, edges: n.head(
                x + ops.index_add(ops.zeros_like(x), edges[1], x[edges[0]], 0)
            )
        ),
    ),
    "a mask in the default dtype, of the least number of the input's, as in CLIP": Pair(
        lambda: (draw(4, 5, 8), labels(4)),
        lambda: theirs(
            lambda n, x: n.head(
                (
                    (x @ x.mT + torch.full((5, 5), torch.finfo(x.dtype).min).triu(1)).softmax(-1)
                    @ x
                ).mean(1)
            )
        ),
        lambda: ours(
            lambda n, x: n.head(
                ops.bmm(
                    ops.softmax(
                        ops.bmm(x, x.swapaxes(1, 2)) + LEAST[: x.shape[1], : x.shape[1]], -1
                    ),
                    x,
                ).mean(1)
            )
        ),
    ),
    # PoolFormer where one pixel is left: its pool minus its input is zero, and so is the gradient
    # of its scale. In another kernel it is zero except for rounding, of which Adam makes whole
    # steps.
    "a gradient that is zero in the reference only": Pair(
        vector,
        lambda: theirs(
            lambda n, x: n.head(n.part(x) + n.scale * (n.part(x)[:, None].mean(1) - n.part(x))),
            t.Linear(8, 8),
            scale=t.Parameter(torch.full((8,), 1e-5)),
        ),
        lambda: ours(
            lambda n, x: n.head(n.part(x) + n.scale * (n.part(x) * 7.1 / 7.1 - n.part(x))),
            nn.Dense(8, 8),
            scale=ones(8),
        ),
        ADAMW,
        updates=3,
    ),
    "a parameter that is one number, as CLIP's logit_scale": Pair(
        vector,
        lambda: theirs(
            lambda n, x: n.head(x) * n.scale.exp(), scale=t.Parameter(torch.tensor(2.6592))
        ),
        lambda: ours(
            lambda n, x: n.head(x) * n.scale.exp(),
            scale=Parameter(Tensor(2.6592, mindspore.float32)),
        ),
        ADAMW,
        {"initialisation": True},
    ),
    "labels that are no class": Pair(
        lambda: (draw(6, 8), np.array([3, 0, 1, 2, 3, 1], np.int32)), Theirs, Ours, options=ORDINAL
    ),
    "torch's old weight norm, whose computed weight cannot be copied deeply": Pair(
        vector, lambda: Theirs(t.utils.weight_norm(t.Linear(8, 8))), lambda: Ours(PortedNorm())
    ),
    "a layer that stands for two": Pair(
        images, lambda: Theirs(t.Conv2d(3, 8, 1, bias=False), NormAct(t.ReLU())), norm_and_act
    ),
    "a layer that ends before what the other net does inside of it": Pair(
        vector,
        lambda: Theirs(
            module(lambda n, x: (x + n.a(x)) / 2, a=t.Linear(8, 8)),
            module(lambda n, x: n.a(x), a=t.Linear(8, 8)),
            t.Linear(8, 8),
        ),
        lambda: ours(
            lambda n, x: n.head(n.part[2](n.part[1]((x + n.part[0](x)) / 2) * 3)),
            cell(lambda n, x: n.a(x), a=nn.Dense(8, 8)),
            cell(lambda n, x: n.a(x) / 3, a=nn.Dense(8, 8)),
            nn.Dense(8, 8),
        ),
    ),
    "a named tuple, without a loss": Pair(
        vector,
        lambda: theirs(lambda n, x: Named(x.argmax(1), None, n.head(x))),
        lambda: ours(lambda n, x: {"logits": n.head(x), "best": x.argmax(1)}),
    ),
    "an EmbeddingBag": Pair(
        lambda: (np.random.randint(0, 9, (6, 4)), labels(6)),
        lambda: Theirs(t.EmbeddingBag(9, 8)),
        lambda: ours(lambda n, ids: n.head(n.part(ids).mean(1)), nn.Embedding(9, 8)),
    ),
    "a table in a part of its own, which is not compared with the whole layer": Pair(
        vector,
        lambda: theirs(lambda n, x: n.head(n.bias(x)), bias=table_inside()),
        lambda: ours(lambda n, x: n.head(n.body(x)), body=table_apart()),
    ),
    "an attention's projections, which are paired by their names whatever their order": Pair(
        vector,
        lambda: theirs(
            lambda n, x: n.head(n.to_q(x) + 2 * n.to_k(x) + 3 * n.to_v(x)),
            **{f"to_{name}": t.Linear(8, 8) for name in "qkv"},
        ),
        lambda: ours(
            lambda n, x: n.head(2 * n.key(x) + n.query(x) + 3 * n.value(x)),
            **{name: nn.Dense(8, 8) for name in ("query", "key", "value")},
        ),
    ),
    "a lazy layer": Pair(vector, lambda: Theirs(t.LazyLinear(8)), lambda: Ours(nn.Dense(8, 8))),
    "dropout that moves past a ReLU, which computes the same": Pair(
        vector,
        lambda: Theirs(
            t.Linear(8, 8), t.Dropout(0.4), t.ReLU(), t.Linear(8, 8), t.ReLU(), t.Dropout(0.4)
        ),
        lambda: Ours(
            nn.Dense(8, 8),
            nn.ReLU(),
            nn.Dropout(p=0.4),
            nn.Dense(8, 8),
            nn.Dropout(p=0.4),
            nn.ReLU(),
        ),
    ),
}


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of the old weight norm
@pytest.mark.parametrize("name", PORTS)
def test_each_right_port_agrees(name):
    PORTS[name].climb()


def test_a_layer_that_stands_for_two_others_differs():
    module = Theirs(t.Conv2d(3, 8, 1, bias=False), NormAct(t.SiLU()))
    ladder = ladder_of(norm_and_act(), module, [images()])
    assert (title_of_stage(ladder.first_stage), ladder.first_layer.name) == (
        "eval forward",
        "part.1",
    ), table(ladder)


def unused() -> tuple[nn.Cell, Any]:
    """A mask token and a pooler that no output depends on."""
    module = theirs(Theirs.forward, t.Linear(8, 8), t.Sigmoid(), pooler=t.Linear(8, 8))
    module.token = t.Parameter(torch.randn(8))
    return ours(
        Ours.construct, nn.Dense(8, 8), nn.Sigmoid(), pooler=nn.Dense(8, 8), token=ones(8)
    ), module


@pytest.mark.parametrize("use", [SGD, ADAMW], ids=["SGD", "AdamW"])
def test_parameters_that_no_side_uses_are_named(use):
    """torch gives them neither state nor weight decay; a line reports that."""
    ladder = agrees(*unused(), vectors(5), dataclasses.replace(use, decay_all=True))
    (line,) = [line for line in ladder.changes if "token" in line]
    assert "pooler.weight" in line
    assert "weight decay" in line


class Output(collections.OrderedDict):
    """As the outputs of transformers: a dict with attributes."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


class Cache:
    """Keys and values in an object of its own."""


def test_outputs_in_dict_and_tuple_are_paired():
    """Without a loss: the recipe's, of `logits`.

    Outputs are paired by order and shape; what we have more is named.
    """

    def forward(self, x):
        hidden = self.part(x)
        return Output(logits=self.head(hidden), past_key_values=Cache(), hidden_states=(x, hidden))

    def construct(self, x):
        hidden = self.part(x)
        return self.head(hidden), (hidden[:, :4], hidden[:, 4:]), (x, hidden)

    net, module = (
        ours(construct, nn.Dense(8, 8), nn.Sigmoid()),
        theirs(forward, t.Linear(8, 8), t.Sigmoid()),
    )
    ladder = agrees(net, module, vectors())
    assert [len(stage_of(ladder, f"{mode} forward").differences) for mode in ("eval", "train")] == [
        3,
        3,
    ]
    assert "logits 1 0" in stage_of(ladder, "eval forward").note


def test_outputs_and_labels_that_mismatch_are_named():
    nets = Ours(nn.Sigmoid()), Theirs(t.Sigmoid())
    with pytest.raises(ValueError, match=r"boxes.*--loss"):
        ladder_of(nets[0], theirs(lambda self, x: Output(boxes=self.head(x), scores=x)), vectors())
    with pytest.raises(ValueError, match=r"\[6, 3\].*\[5\].*--loss"):
        ladder_of(*nets, [(draw(6, 8), labels(5))])


def test_a_single_drawn_number_is_no_constant():
    """The bias of Linear(8, 1), whose number is drawn; MindSpore's Dense draws it likewise.

    No label is a class.
    """
    net, module = Ours(nn.Sigmoid(), classes=1), Theirs(t.Sigmoid(), classes=1)
    batches = [(draw(6, 8), np.array([1, 0, 1, 1, 0, 1], np.int32))] * 2
    agrees(net, module, batches, initialisation=True, **ORDINAL)
    net = Ours(nn.Sigmoid(), classes=1)
    ops.assign(net.head.bias, ops.zeros_like(net.head.bias))
    ladder = ladder_of(net, module, batches, initialisation=True, **ORDINAL)
    assert title_of_stage(ladder.first_stage) == "initialisation"


def test_a_reference_may_write_into_its_input():
    """And whose ReLU writes into what the layer before it gave."""

    def forward(self, x):
        x += 1
        return self.head(self.part(x))

    def construct(self, x):
        return self.head(self.part(x + 1))

    batches = vectors()
    kept = [batch[0].copy() for batch in batches]
    net = ours(construct, nn.Dense(8, 8), nn.ReLU())
    ladder = agrees(net, theirs(forward, t.Linear(8, 8), t.ReLU(inplace=True)), batches)
    assert all(np.array_equal(one, batch[0]) for one, batch in zip(kept, batches, strict=True))
    assert all(item.input.relative < 1e-6 for item in ladder.layers)


def test_changes_of_batches_in_use_reach_no_side():
    """Both sides see them as they were at first."""
    batches = vectors()

    def loss(logits: Any, labels: Any) -> Any:
        batches[0][0][0] += 1
        return F.cross_entropy(logits, labels.long())

    net = Ours(nn.Sigmoid())
    agrees(net, Theirs(t.Sigmoid()), batches, reference_loss=loss, loss=ops.cross_entropy)


def test_a_float64_failure_names_the_references_line():
    def forward(self, x):
        return (
            self.head(self.part(x)) if x.dtype == torch.float32 else F.linear(x, torch.ones(3, 5))
        )

    with pytest.raises(ValueError) as error:
        ladder_of(Ours(nn.Sigmoid()), theirs(forward, t.Sigmoid()), vectors())
    assert "F.linear(x, torch.ones(3, 5))" in str(error.value)
    assert __file__ in str(error.value)


def layer_drop(share: Any) -> Any:
    """Layers that are skipped at random in training, by a share in a configuration."""

    def forward(self, x):
        for layer in self.part:
            if not (self.training and torch.rand([]) < self.config.layerdrop):
                x = torch.sigmoid(layer(x))
        return self.head(x)

    return theirs(
        forward, *(t.Linear(8, 8) for _ in range(3)), config=SimpleNamespace(layerdrop=share)
    )


def ported_layer_drop() -> nn.Cell:
    def construct(self, x):
        for layer in self.part:
            if not (self.training and self.layerdrop > 0 and np.random.uniform() < self.layerdrop):
                x = ops.sigmoid(layer(x))
        return self.head(x)

    return ours(construct, *(nn.Dense(8, 8) for _ in range(3)), layerdrop=0.5)


@pytest.mark.parametrize("share", [0.5, torch.tensor(0.5)])
def test_layers_dropped_with_equal_shares_agree(share):
    ladder = agrees(ported_layer_drop(), layer_drop(share), vectors(), ADAMW)
    stage = stage_of(ladder, "dropout")
    assert [(item.port, item.reference) for item in stage.differences] == [(0.5, 0.5)]


def test_layers_dropped_by_a_tensor_are_undecided():
    """No crash: what is random is named."""
    module = layer_drop(torch.tensor([0.5]))
    ladder = ladder_of(ported_layer_drop(), module, vectors(), ADAMW)
    assert ladder.first_stage is None
    assert "random" in doubt_of(ladder.undecided[-1])


def fused(share: float) -> Ladder:
    """The share of a dropout layer that does not run is a function's; the port drops `share`."""

    def forward(self, x):
        p = self.drop.p if self.training else 0.0
        return self.head(self.part(F.scaled_dot_product_attention(x, x, x, dropout_p=p)).mean(1))

    def construct(self, x):
        scores = self.drop(ops.softmax(ops.bmm(x, x.swapaxes(1, 2)) / 8**0.5, -1))
        return self.head(self.part(ops.bmm(scores, x)).mean(1))

    module = theirs(forward, t.Linear(8, 8), t.Dropout(0.2), drop=t.Dropout(0.1))
    net = ours(construct, nn.Dense(8, 8), nn.Dropout(p=0.2), drop=nn.Dropout(p=share))
    return ladder_of(net, module, tokens())


def test_dropout_inside_the_references_fused_attention_is_compared():
    assert fused(0.1).agrees
    assert title_of_stage(fused(0.3).first_stage) == "dropout"


def steps(dtype: Any) -> np.ndarray:
    """A table computed in `dtype`, then float32."""
    return (
        dtype(1) / dtype(10000) ** (np.arange(40, dtype=dtype).reshape(5, 8) / dtype(40))
    ).astype(np.float32)


@pytest.mark.parametrize(("more", "verdict"), [(0, "ok"), (1e-6, "DIFFERS")])
def test_a_table_may_differ_by_float32s_rounding(more, verdict):
    table = steps(np.float32) + np.float32(more)
    assert not np.array_equal(table, steps(np.float64))

    def forward(self, x):
        return self.head(self.part(x + self.table)).mean(1)

    module = theirs(forward, t.Sigmoid())
    module.register_buffer("table", torch.from_numpy(steps(np.float64)))
    net = ours(forward, nn.Sigmoid(), table=Parameter(Tensor(table), requires_grad=False))
    ladder = ladder_of(net, module, tokens())
    stage = stage_of(ladder, "untrained arrays")
    assert stage.verdict == verdict
    assert ("table" in stage.note) == (not more)


def test_drawing_in_evaluation_on_both_sides_is_undecided():
    """As a variational encoder."""

    def forward(self, x):
        x = self.part(x)
        return self.head(x + torch.randn_like(x))

    def construct(self, x):
        x = self.part(x)
        return self.head(x + Tensor(draw(*x.shape)))

    ladder = ladder_of(ours(construct, nn.Sigmoid()), theirs(forward, t.Sigmoid()), vectors())
    assert ladder.first_stage is None, table(ladder)
    assert {"eval forward", "loss"} <= {title_of_stage(stage) for stage in ladder.undecided}
    assert "dropout" not in table(ladder)


def test_an_optimizer_without_a_kernel_is_undecided():
    """The stages before its first update are decided, and a line names it."""
    net = Ours(nn.Dense(8, 8), nn.Sigmoid())
    module = Theirs(t.Linear(8, 8), t.Sigmoid())
    optimizer = mint.optim.AdamW(net.trainable_params(), lr=0.001, weight_decay=0.01)
    own = {
        "optimizer": optimizer,
        "reference_optimizer": lambda one: torch.optim.AdamW(one.parameters(), lr=0.001),
    }
    ladder = ladder_of(net, module, vectors(3), ADAMW, **own)
    assert stage_of(ladder, "clipped gradients").verdict == "ok"
    names = [title_of_stage(stage) for stage in ladder.undecided]
    assert names == [
        "change by update 1",
        "loss trajectory",
        "weights after update 2",
        "eval forward after the updates",
    ]
    assert ladder.first_stage is None
    assert "no update was made" in doubt_of(ladder.undecided[0])
    assert any("AdamW" in line for line in ladder.changes)


def test_a_parameter_without_a_counterpart_is_left_out(tmp_path):
    """Of the port's alone, and of no use: what the reference computes."""
    net, _ = unused()
    (tmp_path / "map.json").write_text('{"token": null, "pooler": null}')
    module = Theirs(t.Linear(8, 8), t.Sigmoid())
    ladder = agrees(net, module, vectors(), corrections=read_map(str(tmp_path / "map.json")))
    assert set(ladder.names.parameters) == {
        "part.0.weight",
        "part.0.bias",
        "head.weight",
        "head.bias",
    }
    assert any("token, pooler.weight" in line for line in ladder.changes)


@pytest.mark.parametrize("batch", [(), (1,)])
def test_positions_may_be_looked_up_per_sample(batch):
    batches = [(np.random.randint(0, 9, (6, 5)), labels(6)) for _ in range(2)]

    def each(self, x):
        places = torch.arange(5, device=x.device).expand(len(x), 5)
        return self.head(torch.tanh(self.token(x) + self.position(places)).mean(1))

    def once(self, x):
        return self.head(ops.tanh(self.token(x) + self.position(self.places)).mean(1))

    def net(first):
        places = Tensor(np.broadcast_to((np.arange(5) + first) % 5, (*batch, 5)).astype(np.int32))
        return ours(once, token=nn.Embedding(9, 8), position=nn.Embedding(5, 8), places=places)

    module = theirs(each, token=t.Embedding(9, 8), position=t.Embedding(5, 8))
    agrees(net(0), module, batches)
    assert ladder_of(net(1), module, batches).first_layer.name == "position"


@pytest.mark.parametrize("use", [SGD, dataclasses.replace(ADAMW, clip_norm=0.1)])
def test_a_right_port_with_a_dropout_branch_agrees(use):
    """One dropout layer that runs twice is two in the port; the first update is made once more,
    with the same masks.
    """

    def forward(self, x):
        return self.head(
            (x + self.path(self.drop(self.fc2(self.drop(F.gelu(self.fc1(x))))))).mean(1)
        )

    def construct(self, x):
        x = x + self.skip(
            self.of_down(self.down(self.of_up(ops.gelu(self.up(x), approximate="none"))))
        )
        return self.head(x.mean(1))

    layers = {
        "fc1": t.Linear(8, 16),
        "fc2": t.Linear(16, 8),
        "drop": t.Dropout(0.1),
        "path": DropPath(0.3),
    }
    drops = {"of_up": nn.Dropout(p=0.1), "of_down": nn.Dropout(p=0.1), "skip": PortedPath(0.3)}
    net = ours(construct, up=nn.Dense(8, 16), down=nn.Dense(16, 8), **drops)
    batches = [(draw(6, 5, 8), labels(6)) for _ in range(2)]
    ladder = agrees(net, theirs(forward, **layers), batches, use, quick=False, mode="graph")
    for name in ("train forward", "train layers", "loss", "gradients", "change by update 1"):
        assert stage_of(ladder, f"{name}, with dropout").differences
    assert len(stage_of(ladder, "dropout").differences) == 3
    assert (
        stage_of(ladder, "loss").worst.reference
        != stage_of(ladder, "loss, with dropout").worst.reference
    )


@pytest.mark.parametrize("accumulate", [1, 2])
def test_dropout_agrees_with_channels_last(accumulate):
    module = t.Sequential(
        t.Conv2d(3, 4, 1),
        t.Dropout(0.3),
        t.Conv2d(4, 4, 1),
        t.Dropout2d(0.3),
        t.Flatten(),
        t.Linear(80, 3),
    )

    class Last(nn.Cell):
        """The first layers have channels last; a dropout of channels is written for that."""

        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.head = nn.Dense(3, 4), nn.Dense(4, 4), nn.Dense(80, 3)
            self.drop, self.channels = nn.Dropout(p=0.3), nn.Dropout2d(0.3)

        def construct(self, x: Tensor) -> Tensor:
            x = self.b(self.drop(self.a(x.transpose(0, 2, 3, 1))))
            return self.head(self.channels(x.transpose(0, 3, 1, 2)).reshape(-1, 80))

    ladder = agrees(Last(), module, [(draw(4, 3, 5, 4), labels(4))] * 2, accumulate=accumulate)
    assert stage_of(ladder, "gradients, with dropout").differences


def test_dropout_inside_an_lstm_is_compared_by_share():
    def forward(self, x):
        return self.head(self.drop(self.lstm(x)[0].mean(1)))

    lstm, ported = (kind(8, 8, 2, batch_first=True, dropout=0.2) for kind in (t.LSTM, nn.LSTM))
    module, net = (
        theirs(forward, lstm=lstm, drop=t.Dropout(0.1)),
        ours(forward, lstm=ported, drop=nn.Dropout(p=0.1)),
    )
    ladder = agrees(net, module, tokens())
    note = stage_of(ladder, "dropout").note.replace("dropout", "")
    assert ("lstm" in note, "drop" in note) == (True, False)
    assert stage_of(ladder, "gradients, with dropout").differences


@pytest.mark.parametrize(("share", "differs"), [(0.2, False), (0.3, True)])
def test_a_ports_fused_attention_dropout_is_compared(share, differs):
    """The reference's mask has no place in the port: the share alone is compared, and a line names
    it. The other dropout has the same mask on both sides.
    """

    def forward(self, x):
        q, k, v = (part(x).reshape(4, 5, 2, 4).transpose(1, 2) for part in (self.q, self.k, self.v))
        mixed = self.attn_drop((q @ k.transpose(2, 3) / 2).softmax(-1)) @ v
        return self.head(self.drop(self.out_proj(mixed.transpose(1, 2).reshape(4, 5, 8))).mean(1))

    def construct(self, x):
        return self.head(self.drop(self.attn(x, x, x)[0]).mean(1))

    layers = {name: t.Linear(8, 8) for name in ("q", "k", "v", "out_proj")}
    module = theirs(forward, **layers, attn_drop=t.Dropout(0.2), drop=t.Dropout(0.1))
    net = ours(
        construct,
        attn=nn.MultiheadAttention(8, 2, dropout=share, batch_first=True),
        drop=nn.Dropout(p=0.1),
    )
    ladder = ladder_of(net, module, tokens())
    stage = stage_of(ladder, "dropout")
    assert (stage.verdict, ladder.agrees) == (("DIFFERS", False) if differs else ("ok", True)), (
        table(ladder)
    )
    assert ("attn" in stage.note) != differs
    assert stage_of(ladder, "gradients, with dropout").differences


def two_terms(self, x):
    return self.head((self.first(x) + self.second(x.flip(0))).tanh() * torch.exp(-self.decay))


def one_bias(self, x):
    """One bias for two; the decay is kept negative."""
    return self.head(
        (self.first(x) + self.second(ops.reverse(x, [0]))).tanh() * ops.exp(self.minus)
    )


def with_map(corrections, optimizer, tmp_path, clip_norm=0.0):
    (tmp_path / "map.json").write_text(json.dumps(corrections))
    second = t.Linear(8, 8, bias="first.bias" in corrections)
    module = theirs(
        two_terms, first=t.Linear(8, 8), second=second, decay=t.Parameter(torch.rand(8))
    )
    net = ours(one_bias, first=nn.Dense(8, 8), second=nn.Dense(8, 8, has_bias=False), minus=ones(8))
    task = dataclasses.replace(SGD, optimizer=optimizer, nesterov=False, clip_norm=clip_norm)
    corrections = read_map(str(tmp_path / "map.json"))
    return ladder_of(net, module, vectors(3), task, corrections=corrections)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_sign_is_followed_through_all_stages(optimizer, tmp_path):
    ladder = with_map({"minus": "-decay"}, optimizer, tmp_path)
    assert ladder.agrees, table(ladder)


@pytest.mark.parametrize("clip_norm", [0.0, 0.1])
def test_a_sum_is_compared_until_each_part_counts(clip_norm, tmp_path):
    corrections = {"minus": "-decay", "first.bias": "first.bias + second.bias"}
    ladder = with_map(corrections, "sgd", tmp_path, clip_norm)
    assert (
        stage_of(ladder, "gradients").verdict == stage_of(ladder, "eval layers").verdict == "ok"
    ), table(ladder)
    assert title_of_stage(ladder.first_stage) == "gradient norm"
    assert any(
        line.startswith("first.bias: the sum of first.bias, second.bias in the")
        for line in ladder.changes
    )
    if not clip_norm:
        change = stage_of(ladder, "change by update 1")
        assert [item.name for item in change.differences if item.verdict == "DIFFERS"] == [
            "first.bias"
        ]


def test_convolutions_may_be_dense_layers_on_tokens():
    """Each has the other's numbers, in [n, h·w, c] for [n, c, h, w]; so do dropout masks."""

    def planes(self, x):
        return self.head(self.mix(self.drop(self.part(x))).tanh().mean((2, 3)))

    def tokens(self, x):
        x = self.part(x)
        x = x.reshape((x.shape[0], x.shape[1], -1)).swapaxes(1, 2)
        return self.head(self.mix(self.drop(x)).tanh().mean(1))

    module = theirs(planes, t.Conv2d(3, 8, 2, 2), drop=t.Dropout(0.3), mix=t.Conv2d(8, 8, 1))
    stem = nn.Conv2d(3, 8, 2, 2, pad_mode="valid", has_bias=True)
    net = ours(tokens, stem, drop=nn.Dropout(p=0.3), mix=nn.Dense(8, 8))
    ladder = ladder_of(net, module, [images() for _ in range(2)], SGD)
    assert ladder.agrees, table(ladder)
    assert stage_of(ladder, "train layers, with dropout").verdict == "ok"
