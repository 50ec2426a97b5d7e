"""Right ports of tiny nets of many kinds, under other names, are matched by structure and agree."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.parity.replay import compare_step
from resnet_fn.parity.report import table
from resnet_fn.recipes import recipe

torch = pytest.importorskip("torch", reason="the ladder compares with torch: pip install torch")
t, F = torch.nn, torch.nn.functional
pytestmark = pytest.mark.usefixtures("device")

RECIPE = dataclasses.replace(recipe("digits"), learning_rate=0.02, clip_norm=0.0)
PLACES = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)
CLIPPED = dataclasses.replace(RECIPE, clip_norm=0.5)
ADAMW = dataclasses.replace(RECIPE, optimizer="adamw", nesterov=False, learning_rate=1e-3, weight_decay=0.05)


class Theirs(t.Module):
    """Layers in a row; images are averaged before the last."""

    def __init__(self, *layers: Any, width: int = 8) -> None:
        super().__init__()
        self.body, self.head = t.Sequential(*layers), t.Linear(width, 3)

    def forward(self, x: Any) -> Any:
        x = self.body(x)
        return self.head(x if x.ndim == 2 else x.flatten(2).mean(2))


class Ours(nn.Cell):
    """The same, under other names."""

    def __init__(self, *layers: nn.Cell, width: int = 8) -> None:
        super().__init__()
        self.layers, self.last = nn.SequentialCell(*layers), nn.Dense(width, 3)

    def construct(self, x: Tensor) -> Tensor:
        x = self.layers(x)
        return self.last(x if x.ndim == 2 else x.reshape(x.shape[0], x.shape[1], -1).mean(2))


class ConvNeXtBlock(t.Module):
    def __init__(self, width):
        super().__init__()
        self.dwconv = t.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = t.LayerNorm(width, eps=1e-6)
        self.pwconv1, self.act, self.pwconv2 = t.Linear(width, 4 * width), t.GELU(), t.Linear(4 * width, width)
        self.gamma = t.Parameter(torch.full((width,), 0.5))

    def forward(self, x):
        out = self.norm(self.dwconv(x).permute(0, 2, 3, 1))
        return x + (self.gamma * self.pwconv2(self.act(self.pwconv1(out)))).permute(0, 3, 1, 2)


class ConvNeXt(t.Module):
    def __init__(self):
        super().__init__()
        self.stem = t.Conv2d(3, 8, 4, 4)
        self.blocks = t.Sequential(ConvNeXtBlock(8), ConvNeXtBlock(8))
        self.head_norm, self.head = t.LayerNorm(8, eps=1e-6), t.Linear(8, 5)

    def forward(self, x):
        return self.head(self.head_norm(self.blocks(self.stem(x)).mean((2, 3))))


class PortedConvNeXtBlock(nn.Cell):
    """Dense layers as convolutions of one pixel, channels last inside the norm only."""

    def __init__(self, width):
        super().__init__()
        self.depth = nn.Conv2d(width, width, 7, group=width, has_bias=True)
        self.ln = nn.LayerNorm((width,), epsilon=1e-6)
        self.wide = nn.Conv2d(width, 4 * width, 1, has_bias=True)
        self.narrow = nn.Conv2d(4 * width, width, 1, has_bias=True)
        self.gelu = nn.GELU(approximate=False)
        self.scale = Parameter(Tensor(np.ones(width, np.float32)))

    def construct(self, x):
        out = self.ln(self.depth(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return x + self.scale.reshape(1, -1, 1, 1) * self.narrow(self.gelu(self.wide(out)))


class PortedConvNeXt(nn.Cell):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, 4, pad_mode="valid", has_bias=True)
        self.body = nn.SequentialCell([PortedConvNeXtBlock(8), PortedConvNeXtBlock(8)])
        self.last, self.classify = nn.LayerNorm((8,), epsilon=1e-6), nn.Dense(8, 5)

    def construct(self, x):
        return self.classify(self.last(self.body(self.patches(x)).mean((2, 3))))


class ViT(t.Module):
    """torch's own encoder layers, norm first, behind patches and a class token."""

    def __init__(self):
        super().__init__()
        self.patches = t.Conv2d(3, 8, 8, 8)
        self.cls = t.Parameter(torch.randn(1, 1, 8))
        self.pos = t.Parameter(torch.randn(1, 5, 8))
        layer = t.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder = t.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        for parameter in self.encoder.parameters():
            t.init.normal_(parameter, std=0.5)
        self.norm, self.head = t.LayerNorm(8), t.Linear(8, 5)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        return self.head(self.norm(self.encoder(x))[:, 0])


class PortedBlock(nn.Cell):
    def __init__(self, fused):
        super().__init__()
        self.fused = fused
        self.ln_a, self.ln_b = nn.LayerNorm((8,), epsilon=1e-5), nn.LayerNorm((8,), epsilon=1e-5)
        if fused:
            self.into = nn.Dense(8, 24)
        else:
            self.query, self.key, self.value = nn.Dense(8, 8), nn.Dense(8, 8), nn.Dense(8, 8)
        self.back = nn.Dense(8, 8)
        self.up, self.down, self.gelu = nn.Dense(8, 16), nn.Dense(16, 8), nn.GELU(approximate=False)

    def construct(self, x):
        n, length, width = x.shape
        h = self.ln_a(x)
        parts = ops.split(self.into(h), width, 2) if self.fused else (self.query(h), self.key(h), self.value(h))
        q, k, v = (part.reshape(n, length, 2, 4).transpose(0, 2, 1, 3) for part in parts)
        mixed = ops.matmul(ops.softmax(ops.matmul(q, k.swapaxes(2, 3)) / 2, -1), v)
        x = x + self.back(mixed.transpose(0, 2, 1, 3).reshape(n, length, width))
        return x + self.down(self.gelu(self.up(self.ln_b(x))))


class PortedViT(nn.Cell):
    def __init__(self, fused=False):
        super().__init__()
        self.embed = nn.Conv2d(3, 8, 8, 8, pad_mode="valid", has_bias=True)
        self.token = Parameter(Tensor(np.zeros((1, 1, 8), np.float32)))
        self.places = Parameter(Tensor(np.zeros((1, 5, 8), np.float32)))
        self.blocks = nn.CellList([PortedBlock(fused), PortedBlock(fused)])
        self.ln, self.out = nn.LayerNorm((8,), epsilon=1e-5), nn.Dense(8, 5)

    def construct(self, x):
        x = self.embed(x).reshape(x.shape[0], 8, -1).transpose(0, 2, 1)
        x = ops.cat([ops.tile(self.token, (x.shape[0], 1, 1)), x], 1) + self.places
        for block in self.blocks:
            x = block(x)
        return self.out(self.ln(x)[:, 0])


class Tied(t.Module):
    """Token ids and a padding mask; the output layer shares the embedding's weight."""

    def __init__(self):
        super().__init__()
        self.embed = t.Embedding(11, 8, padding_idx=0)
        self.register_buffer("positions", torch.from_numpy(PLACES))
        self.attn = t.MultiheadAttention(8, 2, batch_first=True)
        self.norm = t.LayerNorm(8)
        self.lstm = t.LSTM(8, 4, bidirectional=True, batch_first=True)
        self.head = t.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids, mask):
        x = self.embed(ids) + self.positions
        x = self.norm(x + self.attn(x, x, x, key_padding_mask=~mask)[0])
        return self.head((self.lstm(x)[0] * mask[..., None]).sum(1))


class PortedTied(nn.Cell):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 8, padding_idx=0)
        self.places = Tensor(PLACES)
        self.mixer = nn.MultiheadAttention(8, 2, batch_first=True)
        self.ln = nn.LayerNorm((8,), epsilon=1e-5)
        self.rnn = nn.LSTM(8, 4, bidirectional=True, batch_first=True)
        self.out = nn.Dense(8, 11, has_bias=False)
        self.out.weight = self.table.embedding_table

    def construct(self, ids, mask):
        x = self.table(ids) + self.places
        x = self.ln(x + self.mixer(x, x, x, key_padding_mask=ops.logical_not(mask))[0])
        return self.out((self.rnn(x)[0] * mask.expand_dims(-1)).sum(1))


class UNet(t.Module):
    def __init__(self):
        super().__init__()
        self.enter = t.Sequential(t.Conv2d(3, 6, 3, padding=1), t.GroupNorm(2, 6), t.SiLU())
        self.down = t.Conv2d(6, 12, 3, 2, 1)
        self.norm = t.InstanceNorm2d(12, affine=True)
        self.up = t.ConvTranspose2d(12, 6, 3, 2, 1, output_padding=1)
        self.small = t.Conv2d(12, 6, 1)
        self.larger = t.Upsample(scale_factor=2, mode="bilinear")
        self.act, self.leave = t.PReLU(18), t.Conv2d(18, 2, 3, padding=1)

    def forward(self, x):
        x = self.enter(x)
        low = self.norm(self.down(x))
        return self.leave(self.act(torch.cat([x, self.up(low), self.larger(self.small(low))], 1)))


class PortedUNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 6, 3, has_bias=True)
        self.b = nn.GroupNorm(2, 6)
        self.c = nn.Conv2d(6, 12, 3, 2, pad_mode="pad", padding=1, has_bias=True)
        self.d = nn.GroupNorm(12, 12)
        self.e = nn.Conv2dTranspose(12, 6, 3, 2, pad_mode="pad", padding=(1, 0, 1, 0), has_bias=True)
        self.f = nn.Conv2d(12, 6, 1, has_bias=True)
        self.g = nn.Upsample(size=(16, 16), mode="bilinear", align_corners=False)
        self.h, self.i = nn.PReLU(18), nn.Conv2d(18, 2, 3, has_bias=True)

    def construct(self, x):
        x = ops.silu(self.b(self.a(x)))
        low = self.d(self.c(x))
        return self.i(self.h(ops.cat([x, self.e(low), self.g(self.f(low))], 1)))


class Centred(t.Module):
    """A layer norm written by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = t.Parameter(torch.full((8,), 0.7)), t.Parameter(torch.zeros(8))

    def forward(self, x: Any) -> Any:
        x = x - x.mean(-1, keepdim=True)
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5) * self.weight + self.bias


class PortedCentred(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = Parameter(Tensor(np.ones(8, np.float32))), Parameter(Tensor(np.ones(8, np.float32)))

    def construct(self, x: Tensor) -> Tensor:
        x = x - x.mean(-1, keep_dims=True)
        return x / ops.sqrt((x * x).mean(-1, keep_dims=True) + 1e-5) * self.weight + self.bias


class Repeated(Ours):
    """One block three times, under one name."""

    def construct(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = self.layers(x)
        return self.last(x)


class Heads(t.Module):
    """Two outputs: classes, and boxes; with `turned` others in training, one of which has not the batch first."""

    def __init__(self, turned: bool = False) -> None:
        super().__init__()
        self.body, self.classes, self.boxes, self.turned = t.Linear(8, 8), t.Linear(8, 3), t.Linear(8, 4), turned

    def forward(self, x: Any) -> Any:
        x = torch.tanh(self.body(x))
        if not self.turned:
            return self.classes(x), self.boxes(x)
        return (self.classes(x), self.boxes(x).T) if self.training else self.classes(x)


class PortedHeads(nn.Cell):
    def __init__(self, turned: bool = False) -> None:
        super().__init__()
        self.first, self.which, self.where, self.turned = nn.Dense(8, 8), nn.Dense(8, 3), nn.Dense(8, 4), turned

    def construct(self, x: Tensor) -> Any:
        x = ops.tanh(self.first(x))
        if not self.turned:
            return self.which(x), self.where(x)
        return (self.which(x), self.where(x).T) if self.training else self.which(x)


def frozen(net: Any) -> Any:
    """All but the last layer."""
    named = net.named_parameters() if isinstance(net, t.Module) else net.parameters_and_names()
    for name, parameter in named:
        parameter.requires_grad = name.startswith(("head", "last"))
    return net


def groups(last: Any, first: Any) -> list[dict[str, Any]]:
    return [{"params": last, "lr": 0.05, "weight_decay": 0.1}, {"params": first, "lr": 0.1}]


def heads_loss(outputs: Any, labels: Any) -> Tensor:
    return ops.cross_entropy(outputs[0], labels[0]) + ops.smooth_l1_loss(outputs[1], labels[1], reduction="mean")


def reference_heads_loss(outputs: Any, labels: Any) -> Any:
    return F.cross_entropy(outputs[0], labels[0].long()) + F.smooth_l1_loss(outputs[1], labels[1])


def trained_loss(outputs: Any, labels: Any) -> Tensor:
    """Of shape [1]."""
    return heads_loss((outputs[0], outputs[1].T), labels).reshape((1,))


def reference_trained_loss(outputs: Any, labels: Any) -> Any:
    return reference_heads_loss((outputs[0], outputs[1].T), labels).reshape(1)


def squares(outputs: Tensor, labels: Tensor) -> Tensor:
    return ((outputs - labels) ** 2).mean()


def drawn(*shape: int) -> Callable[[np.random.Generator], Any]:
    return lambda rng: (rng.normal(size=shape).astype(np.float32), rng.integers(0, 3, shape[0]).astype(np.int32))


images, vectors, pixels = (drawn(*shape) for shape in ((4, 3, 8, 8), (6, 8), (2, 3, 16, 16)))


def boxes(rng: np.random.Generator) -> Any:
    return vectors(rng)[0], (rng.integers(0, 3, 6).astype(np.int32), rng.normal(size=(6, 4)).astype(np.float32))


def masked(rng: np.random.Generator) -> Any:
    mask = np.array([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]], bool)
    return {"ids": rng.integers(1, 11, (2, 6)).astype(np.int32), "mask": mask}, rng.integers(0, 3, 2).astype(np.int32)


def pictures(rng: np.random.Generator) -> Any:
    return tuple(rng.normal(size=(2, channels, 16, 16)).astype(np.float32) for channels in (3, 2))


@dataclasses.dataclass(frozen=True)
class Pair:
    """A net and its right port."""

    batch: Callable[[np.random.Generator], Any]
    theirs: Callable[[], Any]
    ours: Callable[[], nn.Cell]
    recipe: Any = RECIPE
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    optimizer: Callable[[nn.Cell], nn.Optimizer] | None = None
    updates: int = 2


VECTORS = (vectors, lambda: Theirs(t.Linear(8, 8), t.Tanh()), lambda: Ours(nn.Dense(8, 8), nn.Tanh()))
PAIRS = {
    "convolution and BatchNorm": Pair(
        images,
        lambda: Theirs(t.Conv2d(3, 8, 3, padding=1, bias=False), t.BatchNorm2d(8), t.ReLU(), t.MaxPool2d(2)),
        lambda: Ours(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2, 2)),
        CLIPPED,
    ),
    "a bias before BatchNorm, which drifts under Adam": Pair(
        drawn(8, 3, 8, 8),
        lambda: Theirs(t.Conv2d(3, 8, 3, padding=1), t.BatchNorm2d(8), t.ReLU()),
        lambda: Ours(nn.Conv2d(3, 8, 3, has_bias=True), nn.BatchNorm2d(8), nn.ReLU()),
        ADAMW,
        {"accumulate": 4},
        updates=5,
    ),
    "ConvNeXt": Pair(pixels, ConvNeXt, PortedConvNeXt, ADAMW),
    "vision transformer": Pair(pixels, ViT, PortedViT),
    "vision transformer, one projection": Pair(pixels, ViT, lambda: PortedViT(True), ADAMW),
    "UNet": Pair(pictures, UNet, PortedUNet, options={"loss": squares, "reference_loss": F.mse_loss}),
    "text, attention, tied weights": Pair(masked, Tied, PortedTied),
    "tuple of outputs": Pair(
        boxes, Heads, PortedHeads, options={"loss": heads_loss, "reference_loss": reference_heads_loss}
    ),
    "other outputs in training, a loss of shape [1]": Pair(
        boxes,
        lambda: Heads(True),
        lambda: PortedHeads(True),
        options={"loss": trained_loss, "reference_loss": reference_trained_loss, "accumulate": 2},
    ),
    "frozen body": Pair(
        images,
        lambda: frozen(Theirs(t.Conv2d(3, 8, 3, padding=1), t.ReLU())),
        lambda: frozen(Ours(nn.Conv2d(3, 8, 3, has_bias=True), nn.ReLU())),
    ),
    "one direction": Pair(
        drawn(4, 3, 12),
        lambda: Theirs(t.Conv1d(3, 8, 3, padding=1), t.LeakyReLU(0.1), t.AvgPool1d(2)),
        lambda: Ours(nn.Conv1d(3, 8, 3, has_bias=True), nn.LeakyReLU(0.1), nn.AvgPool1d(2, 2)),
    ),
    "a layer norm written by hand": Pair(
        vectors,
        lambda: Theirs(t.Linear(8, 8), Centred()),
        lambda: Ours(nn.Dense(8, 8), nn.LayerNorm((8,), epsilon=1e-5)),
    ),
    "a layer norm ported by hand": Pair(
        vectors, lambda: Theirs(t.Linear(8, 8), t.LayerNorm(8)), lambda: Ours(nn.Dense(8, 8), PortedCentred()), ADAMW
    ),
    "one block under three names": Pair(
        vectors,
        lambda: Theirs(*[t.Sequential(t.Linear(8, 8), t.BatchNorm1d(8), t.Sigmoid())] * 3),
        lambda: Ours(*[nn.SequentialCell(nn.Dense(8, 8), nn.BatchNorm1d(8), nn.Sigmoid())] * 3),
    ),
    "one block under three names, and under one": Pair(
        vectors,
        lambda: Theirs(*[t.Sequential(t.Linear(8, 8), t.BatchNorm1d(8), t.Sigmoid())] * 3),
        lambda: Repeated(nn.SequentialCell(nn.Dense(8, 8), nn.BatchNorm1d(8), nn.Sigmoid())),
    ),
    "dropout": Pair(
        vectors,
        lambda: Theirs(t.Linear(8, 8), t.Dropout(0.3), t.Tanh()),
        lambda: Ours(nn.Dense(8, 8), nn.Dropout(p=0.3), nn.Tanh()),
    ),
    "MindSpore's Momentum": Pair(
        *VECTORS,
        options={"reference_optimizer": lambda m: torch.optim.SGD(m.parameters(), 0.1, 0.9, weight_decay=0.1)},
        optimizer=lambda net: nn.Momentum(net.trainable_params(), 0.1, 0.9, weight_decay=0.1),
    ),
    "MindSpore's SGD, groups in another order": Pair(
        *VECTORS,
        options={
            "reference_optimizer": lambda m: torch.optim.SGD(
                groups(m.head.parameters(), m.body.parameters()), 0.1, 0.9, nesterov=True
            )
        },
        optimizer=lambda net: nn.SGD(
            groups(net.last.trainable_params(), net.layers.trainable_params()), 0.1, 0.9, nesterov=True
        ),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_right_port_agrees(name):
    pair = PAIRS[name]
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    module, net = pair.theirs(), pair.ours()
    batches = [pair.batch(rng) for _ in range(pair.updates)]
    optimizer = pair.optimizer(net) if pair.optimizer else None
    ladder = compare_step(net, module, batches, pair.recipe, optimizer=optimizer, initialisation=False, **pair.options)
    assert ladder.agrees, table(ladder)
    assert (ladder.notes, ladder.names.how) == ([], "execution order and shapes")
    assert set(ladder.names.parameters) == set(dict(net.parameters_and_names()))
    assert max(item.output.relative for item in ladder.layers) < 1e-4
    compared = [stage.name for stage in ladder.stages if stage.verdict != "skipped"]
    assert {"weights", "eval forward", "loss", "gradients", "change by update 1"} <= set(compared)
