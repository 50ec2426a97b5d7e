"""Right ports of tiny nets of many kinds, from several seeds: none is called different."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from resnet_fn.parity.replay import compare_step
from resnet_fn.parity.report import table
from resnet_fn.recipes import recipe

torch = pytest.importorskip("torch", reason="the ladder compares with torch: pip install 'resnet_fn[torch]'")
t, F = torch.nn, torch.nn.functional
pytestmark = pytest.mark.usefixtures("device")

RECIPE = dataclasses.replace(recipe("digits"), learning_rate=0.02, clip_norm=0.0)
CLIPPED = dataclasses.replace(RECIPE, clip_norm=0.5)
ADAMW = dataclasses.replace(RECIPE, optimizer="adamw", nesterov=False, learning_rate=1e-3, weight_decay=0.05)


class Theirs(t.Module):
    """Layers in a row; what is spatial, or a sequence, is averaged before the last."""

    def __init__(self, *layers: Any, width: int = 8) -> None:
        super().__init__()
        self.body, self.head = t.Sequential(*layers), t.Linear(width, 3)

    def forward(self, x: Any) -> Any:
        x = self.body(x)
        return self.head(x if x.ndim == 2 else x.mean(1) if x.shape[-1] == 8 and x.ndim == 3 else x.flatten(2).mean(2))


class Ours(nn.Cell):
    """The same, under other names."""

    def __init__(self, *layers: nn.Cell, width: int = 8) -> None:
        super().__init__()
        self.layers, self.last = nn.SequentialCell(*layers), nn.Dense(width, 3)

    def construct(self, x: Tensor) -> Tensor:
        x = self.layers(x)
        if x.ndim == 3 and x.shape[-1] == 8:
            x = x.mean(1)
        elif x.ndim > 2:
            x = x.reshape(x.shape[0], x.shape[1], -1).mean(2)
        return self.last(x)


def conv(inputs: int, outputs: int, size: int, **options: Any) -> nn.Cell:
    return nn.Conv2d(inputs, outputs, size, pad_mode="pad", padding=size // 2, has_bias=True, **options)


class Residual(t.Module):
    """A body beside which the input goes; channels last inside, as ConvNeXt has it."""

    def __init__(self, *layers: Any, last: bool = False) -> None:
        super().__init__()
        self.inner, self.last = t.Sequential(*layers), last

    def forward(self, x: Any) -> Any:
        return x + (self.inner(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2) if self.last else self.inner(x))


class PortedResidual(nn.Cell):
    def __init__(self, *layers: nn.Cell, last: bool = False) -> None:
        super().__init__()
        self.branch, self.last = nn.SequentialCell(*layers), last

    def construct(self, x: Tensor) -> Tensor:
        if self.last:
            return x + self.branch(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return x + self.branch(x)


class Excite(t.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = t.Linear(8, 4), t.Linear(4, 8)

    def forward(self, x: Any) -> Any:
        return x * torch.sigmoid(self.up(torch.relu(self.down(x.mean((2, 3))))))[:, :, None, None]


class PortedExcite(nn.Cell):
    """As convolutions of one pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(8, 4, 1, has_bias=True), nn.Conv2d(4, 8, 1, has_bias=True)

    def construct(self, x: Tensor) -> Tensor:
        return x * ops.sigmoid(self.b(ops.relu(self.a(x.mean((2, 3), keep_dims=True)))))


class Attention(t.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = t.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.attn(x, x, x, need_weights=False)[0]


class PortedAttention(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Dense(8, 8) for _ in range(4))

    def construct(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        q, k, v = (part(x).reshape(n, length, 2, 4).transpose(0, 2, 1, 3) for part in (self.q, self.k, self.v))
        mixed = ops.matmul(ops.softmax(ops.matmul(q, k.swapaxes(2, 3)) * 0.5, -1), v)
        return self.out(mixed.transpose(0, 2, 1, 3).reshape(n, length, width))


class Patches(t.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = t.Conv2d(3, 8, 4, 4)

    def forward(self, x: Any) -> Any:
        return self.embed(x).flatten(2).transpose(1, 2)


class PortedPatches(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, 8, 4, 4, pad_mode="valid", has_bias=True)

    def construct(self, x: Tensor) -> Tensor:
        return self.cut(x).reshape(x.shape[0], 8, -1).transpose(0, 2, 1)


class Recurrent(t.Module):
    def __init__(self, kind: str, both: bool) -> None:
        super().__init__()
        self.rnn = getattr(t, kind)(8, 4 if both else 8, bidirectional=both, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.rnn(x)[0]


class PortedRecurrent(nn.Cell):
    def __init__(self, kind: str, both: bool) -> None:
        super().__init__()
        self.cell = getattr(nn, kind)(8, 4 if both else 8, bidirectional=both, batch_first=True)

    def construct(self, x: Tensor) -> Tensor:
        return self.cell(x)[0]


class Text(t.Module):
    """Ids and a mask by their names; `tied`: the output layer is the embedding's weight."""

    def __init__(self, tied: bool = False) -> None:
        super().__init__()
        self.embed, self.norm = t.Embedding(9, 8, padding_idx=0), t.LayerNorm(8)
        self.head = t.Linear(8, 9, bias=False) if tied else t.Linear(8, 3)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, ids: Any, mask: Any) -> Any:
        x = self.norm(self.embed(ids)) * mask[..., None]
        return self.head(x.sum(1) / mask.sum(1, keepdim=True))


class PortedText(nn.Cell):
    def __init__(self, tied: bool = False) -> None:
        super().__init__()
        self.table, self.ln = nn.Embedding(9, 8, padding_idx=0), nn.LayerNorm((8,), epsilon=1e-5)
        self.out = nn.Dense(8, 9, has_bias=False) if tied else nn.Dense(8, 3)
        if tied:
            self.out.weight = self.table.embedding_table

    def construct(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.table(ids) * (ids != 0).expand_dims(-1)
        x = self.ln(x) * mask.expand_dims(-1)
        return self.out(x.sum(1) / mask.sum(1).expand_dims(1))


class Decoder(t.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = t.Conv2d(3, 8, 3, 2, 1), t.ConvTranspose2d(8, 3, 3, 2, 1, output_padding=1)

    def forward(self, x: Any) -> Any:
        return self.up(F.silu(self.down(x)))


class PortedDecoder(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(3, 8, 3, 2, pad_mode="pad", padding=1, has_bias=True)
        self.b = nn.Conv2dTranspose(8, 3, 3, 2, pad_mode="pad", padding=(1, 0, 1, 0), has_bias=True)

    def construct(self, x: Tensor) -> Tensor:
        return self.b(ops.silu(self.a(x)))


class Heads(t.Module):
    """Two outputs: classes, and boxes."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.classes, self.boxes = t.Linear(8, 8), t.Linear(8, 3), t.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        x = torch.tanh(self.body(x))
        return self.classes(x), self.boxes(x)


class PortedHeads(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.which, self.where = nn.Dense(8, 8), nn.Dense(8, 3), nn.Dense(8, 4)

    def construct(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = ops.tanh(self.first(x))
        return self.which(x), self.where(x)


def frozen(net: Any) -> Any:
    """All but the last layer."""
    named = net.named_parameters() if isinstance(net, t.Module) else net.parameters_and_names()
    for name, parameter in named:
        parameter.requires_grad = name.startswith(("head", "last"))
    return net


def heads_loss(outputs: Any, labels: Any) -> Tensor:
    return ops.cross_entropy(outputs[0], labels[0]) + ops.smooth_l1_loss(outputs[1], labels[1], reduction="mean")


def reference_heads_loss(outputs: Any, labels: Any) -> Any:
    return F.cross_entropy(outputs[0], labels[0].long()) + F.smooth_l1_loss(outputs[1], labels[1])


def squares(outputs: Tensor, labels: Tensor) -> Tensor:
    return ((outputs - labels) ** 2).mean()


def images(rng: np.random.Generator) -> Any:
    return rng.normal(size=(4, 3, 8, 8)).astype(np.float32), rng.integers(0, 3, 4).astype(np.int32)


def tokens(rng: np.random.Generator) -> Any:
    return rng.normal(size=(4, 5, 8)).astype(np.float32), rng.integers(0, 3, 4).astype(np.int32)


def vectors(rng: np.random.Generator) -> Any:
    return rng.normal(size=(6, 8)).astype(np.float32), rng.integers(0, 3, 6).astype(np.int32)


def signals(rng: np.random.Generator) -> Any:
    return rng.normal(size=(4, 3, 12)).astype(np.float32), rng.integers(0, 3, 4).astype(np.int32)


def ids(rng: np.random.Generator) -> Any:
    found = rng.integers(1, 9, (4, 6)).astype(np.int32)
    found[0, 4:] = found[2, 3:] = 0
    return {"ids": found, "mask": (found != 0).astype(np.float32)}, rng.integers(0, 3, 4).astype(np.int32)


def boxes(rng: np.random.Generator) -> Any:
    return vectors(rng)[0], (rng.integers(0, 3, 6).astype(np.int32), rng.normal(size=(6, 4)).astype(np.float32))


def pictures(rng: np.random.Generator) -> Any:
    return tuple(rng.normal(size=(4, 3, 8, 8)).astype(np.float32) for _ in range(2))


@dataclasses.dataclass(frozen=True)
class Pair:
    """A net and its right port."""

    batch: Callable[[np.random.Generator], Any]
    theirs: Callable[[], Any]
    ours: Callable[[], nn.Cell]
    recipe: Any = RECIPE
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    optimizer: Callable[[nn.Cell], nn.Optimizer] | None = None


def bn(width: int = 8) -> nn.Cell:
    return nn.BatchNorm2d(width)


def ln() -> nn.Cell:
    return nn.LayerNorm((8,), epsilon=1e-5)


PAIRS = {
    "convolution and BatchNorm": Pair(
        images,
        lambda: Theirs(t.Conv2d(3, 8, 3, padding=1, bias=False), t.BatchNorm2d(8), t.ReLU(), t.MaxPool2d(2)),
        lambda: Ours(nn.Conv2d(3, 8, 3), bn(), nn.ReLU(), nn.MaxPool2d(2, 2)),
    ),
    "residual block": Pair(
        images,
        lambda: Theirs(t.Conv2d(3, 8, 1), Residual(t.Conv2d(8, 8, 3, padding=1), t.BatchNorm2d(8), t.ReLU())),
        lambda: Ours(conv(3, 8, 1), PortedResidual(conv(8, 8, 3), bn(), nn.ReLU())),
        CLIPPED,
    ),
    "ConvNeXt block": Pair(
        images,
        lambda: Theirs(
            t.Conv2d(3, 8, 2, 2),
            Residual(t.Conv2d(8, 8, 3, padding=1, groups=8)),
            Residual(t.LayerNorm(8), t.Linear(8, 16), t.GELU(), t.Linear(16, 8), last=True),
        ),
        lambda: Ours(
            nn.Conv2d(3, 8, 2, 2, pad_mode="valid", has_bias=True),
            PortedResidual(conv(8, 8, 3, group=8)),
            PortedResidual(ln(), nn.Dense(8, 16), nn.GELU(approximate=False), nn.Dense(16, 8), last=True),
        ),
        ADAMW,
    ),
    "vision transformer": Pair(
        images,
        lambda: Theirs(
            Patches(),
            Residual(t.LayerNorm(8), Attention()),
            Residual(t.LayerNorm(8), t.Linear(8, 16), t.GELU(), t.Linear(16, 8)),
            t.LayerNorm(8),
        ),
        lambda: Ours(
            PortedPatches(),
            PortedResidual(ln(), PortedAttention()),
            PortedResidual(ln(), nn.Dense(8, 16), nn.GELU(approximate=False), nn.Dense(16, 8)),
            ln(),
        ),
        ADAMW,
    ),
    "text, ids and mask": Pair(ids, Text, PortedText, ADAMW),
    "text, tied weights": Pair(ids, lambda: Text(True), lambda: PortedText(True)),
    "LSTM": Pair(tokens, lambda: Theirs(Recurrent("LSTM", False)), lambda: Ours(PortedRecurrent("LSTM", False))),
    "LSTM, both directions": Pair(
        tokens, lambda: Theirs(Recurrent("LSTM", True)), lambda: Ours(PortedRecurrent("LSTM", True)), ADAMW
    ),
    "GRU": Pair(tokens, lambda: Theirs(Recurrent("GRU", False)), lambda: Ours(PortedRecurrent("GRU", False))),
    "transposed convolution": Pair(
        pictures, Decoder, PortedDecoder, options={"loss": squares, "reference_loss": F.mse_loss}
    ),
    "tuple of outputs": Pair(
        boxes, Heads, PortedHeads, options={"loss": heads_loss, "reference_loss": reference_heads_loss}
    ),
    "frozen body": Pair(
        images,
        lambda: frozen(Theirs(t.Conv2d(3, 8, 3, padding=1), t.ReLU())),
        lambda: frozen(Ours(conv(3, 8, 3), nn.ReLU())),
    ),
    "GroupNorm and SiLU": Pair(
        images,
        lambda: Theirs(t.Conv2d(3, 8, 3, padding=1), t.GroupNorm(2, 8), t.SiLU()),
        lambda: Ours(conv(3, 8, 3), nn.GroupNorm(2, 8), nn.SiLU()),
    ),
    "InstanceNorm and PReLU": Pair(
        images,
        lambda: Theirs(t.Conv2d(3, 8, 3, padding=1), t.InstanceNorm2d(8, affine=True), t.PReLU(8)),
        lambda: Ours(conv(3, 8, 3), nn.GroupNorm(8, 8), nn.PReLU(8)),
    ),
    "depthwise and Hardswish": Pair(
        images,
        lambda: Theirs(t.Conv2d(3, 8, 1), t.Conv2d(8, 8, 3, 2, 1, groups=8), t.Hardswish(), t.Conv2d(8, 8, 1)),
        lambda: Ours(
            conv(3, 8, 1),
            nn.Conv2d(8, 8, 3, 2, pad_mode="pad", padding=1, group=8, has_bias=True),
            nn.HSwish(),
            conv(8, 8, 1),
        ),
    ),
    "squeeze and excite": Pair(
        images,
        lambda: Theirs(t.Conv2d(3, 8, 3, padding=1), Excite()),
        lambda: Ours(conv(3, 8, 3), PortedExcite()),
    ),
    "one direction": Pair(
        signals,
        lambda: Theirs(t.Conv1d(3, 8, 3, padding=1), t.LeakyReLU(0.1), t.AvgPool1d(2)),
        lambda: Ours(nn.Conv1d(3, 8, 3, has_bias=True), nn.LeakyReLU(0.1), nn.AvgPool1d(2, 2)),
    ),
    "upsampling": Pair(
        images,
        lambda: Theirs(t.Conv2d(3, 8, 3, padding=1), t.Upsample(size=(13, 13), mode="bilinear"), t.ELU()),
        lambda: Ours(conv(3, 8, 3), nn.Upsample(size=(13, 13), mode="bilinear", align_corners=False), nn.ELU()),
    ),
    "BatchNorm1d": Pair(
        vectors,
        lambda: Theirs(t.Linear(8, 8), t.BatchNorm1d(8), t.Sigmoid()),
        lambda: Ours(nn.Dense(8, 8), nn.BatchNorm1d(8), nn.Sigmoid()),
    ),
    "dropout": Pair(
        vectors,
        lambda: Theirs(t.Linear(8, 8), t.Dropout(0.3), t.Tanh()),
        lambda: Ours(nn.Dense(8, 8), nn.Dropout(p=0.3), nn.Tanh()),
    ),
    "MindSpore's Momentum": Pair(
        vectors,
        lambda: Theirs(t.Linear(8, 8), t.Tanh()),
        lambda: Ours(nn.Dense(8, 8), nn.Tanh()),
        options={"reference_optimizer": lambda m: torch.optim.SGD(m.parameters(), 0.1, 0.9, weight_decay=0.1)},
        optimizer=lambda net: nn.Momentum(net.trainable_params(), 0.1, 0.9, weight_decay=0.1),
    ),
    "MindSpore's SGD, groups in another order": Pair(
        vectors,
        lambda: Theirs(t.Linear(8, 8), t.Tanh()),
        lambda: Ours(nn.Dense(8, 8), nn.Tanh()),
        options={
            "reference_optimizer": lambda m: torch.optim.SGD(
                [
                    {"params": m.head.parameters(), "lr": 0.05, "weight_decay": 0.1},
                    {"params": m.body.parameters(), "lr": 0.1},
                ],
                0.1,
                0.9,
                nesterov=True,
            )
        },
        optimizer=lambda net: nn.SGD(
            [
                {"params": net.last.trainable_params(), "lr": 0.05, "weight_decay": 0.1},
                {"params": net.layers.trainable_params(), "lr": 0.1},
            ],
            0.1,
            0.9,
            nesterov=True,
        ),
    ),
}


def agrees(name: str, seed: int) -> None:
    pair = PAIRS[name]
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    module, net = pair.theirs(), pair.ours()
    batches = [pair.batch(rng) for _ in range(2)]
    optimizer = pair.optimizer(net) if pair.optimizer else None
    ladder = compare_step(
        net, module, batches, pair.recipe, optimizer=optimizer, seed=seed, initialisation=False, **pair.options
    )
    assert ladder.agrees, (seed, table(ladder))
    assert ladder.notes == [], (seed, ladder.notes)
    compared = [stage.name for stage in ladder.stages if stage.verdict != "skipped"]
    assert {"weights", "eval forward", "loss", "gradients", "weights after update 1"} <= set(compared)


@pytest.mark.parametrize("name", PAIRS)
def test_a_right_port_agrees(name):
    agrees(name, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_a_right_port_agrees_from_other_seeds(name):
    for seed in (1, 2):
        agrees(name, seed)
