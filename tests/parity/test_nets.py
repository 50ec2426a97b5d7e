"""Whole nets under other names and with other parts: matched by structure alone, and the same function."""

import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.layers import cells as ours_record
from resnet_fn.parity.layers import compare_layers
from resnet_fn.parity.matching import match
from resnet_fn.parity.mindspore_side import assign, state
from resnet_fn.parity.notes import settings_notes

torch = pytest.importorskip("torch", reason="the ladder compares with torch: pip install 'resnet_fn[torch]'")
from resnet_fn.parity import torch_side as theirs_record  # noqa: E402
from resnet_fn.parity.torch_side import state as torch_state  # noqa: E402

pytestmark = pytest.mark.usefixtures("device")
t, F = torch.nn, torch.nn.functional
RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(2, 3, 16, 16)).astype(np.float32)
IDS = RNG.integers(1, 11, (2, 6)).astype(np.int32)
MASK = np.array([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]], bool)


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
        self.wide, self.narrow = (
            nn.Conv2d(width, 4 * width, 1, has_bias=True),
            nn.Conv2d(4 * width, width, 1, has_bias=True),
        )
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


class Text(t.Module):
    """Token ids and a padding mask; the output layer shares the embedding's weight."""

    def __init__(self):
        super().__init__()
        self.embed = t.Embedding(11, 8, padding_idx=0)
        self.register_buffer("positions", torch.randn(6, 8))
        self.attn = t.MultiheadAttention(8, 2, batch_first=True)
        self.norm = t.LayerNorm(8)
        self.lstm = t.LSTM(8, 4, bidirectional=True, batch_first=True)
        self.head = t.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids, mask):
        x = self.embed(ids) + self.positions
        x = self.norm(x + self.attn(x, x, x, key_padding_mask=~mask)[0])
        return self.head((self.lstm(x)[0] * mask[..., None]).sum(1))


class PortedText(nn.Cell):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 8, padding_idx=0)
        self.places = Tensor(np.zeros((6, 8), np.float32))
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


NETS = {
    "convnext": (ConvNeXt, PortedConvNeXt, IMAGES),
    "vit": (ViT, PortedViT, IMAGES),
    "vit, fused": (ViT, lambda: PortedViT(True), IMAGES),
    "text": (Text, PortedText, {"ids": IDS, "mask": MASK}),
    "unet": (UNet, PortedUNet, IMAGES),
}


@pytest.mark.parametrize("name", NETS)
def test_a_right_port_under_other_names_is_matched_and_agrees(name):
    torch.manual_seed(0)
    build, port, inputs = NETS[name]
    module, net = build(), port()
    if name == "text":
        net.places = Tensor(module.positions.numpy())
    layers = ours_record.record_cell(net, inputs, False), theirs_record.record_torch(module, inputs, False)
    values = torch_state(module)
    shapes = [{name: value.shape for name, value in side.items()} for side in (state(net), values)]
    ties = ours_record.tied(net), theirs_record.tied(module)
    constants = ours_record.constants(net), theirs_record.constants(module)
    names = match(*shapes, *layers, tied=ties, constants=constants)
    assert (names.how, names.problems) == ("execution order and shapes", ()), names
    assert set(names.parameters) == set(state(net))
    assert settings_notes(*layers, names.layers) == []
    assign(net, names.rename(values))
    recorded = [
        {mode: record(it, inputs, mode == "train") for mode in ("eval", "train")}
        for record, it in ((ours_record.record_cell, net), (theirs_record.record_torch, module))
    ]
    differences = compare_layers(*recorded, names.layers)
    assert max(item.output.relative for item in differences) < 1e-5, [
        (item.name, item.theirs, item.output.relative) for item in differences
    ]
    assert {item.name for item in differences} >= {"classify", "out", "i"} & set(dict(net.cells_and_names()))
