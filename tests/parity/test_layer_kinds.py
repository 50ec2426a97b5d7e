"""Every kind of layer: matched with its right port, the same function, settings and initialisation
compared.
"""

import re
from functools import cache, partial

import numpy as np
import pytest
from mindspore import nn, ops

from resnet_fn.parity.compare.initial import initial_stage
from resnet_fn.parity.compare.layers import compare_layers
from resnet_fn.parity.compare.notes import settings_notes
from resnet_fn.parity.record.mindspore_cell import state

pytest.importorskip("torch", reason="the ladder compares with torch: pip install torch")
from resnet_fn.parity.record.torch_module import state as torch_state
from small_nets import PADDED, cell, layer_norm, module, t

pytestmark = pytest.mark.usefixtures("device")

RNG = np.random.default_rng(0)


def draw(*shape):
    return RNG.normal(size=shape).astype(np.float32)


SIGNAL, IMAGE, VOLUME, TOKENS = draw(2, 4, 9), draw(2, 4, 8, 8), draw(2, 4, 4, 6, 6), draw(2, 5, 8)
VECTORS, IDS = draw(6, 4), np.array([[1, 2, 0], [5, 4, 0]], np.int32)


class Attention(nn.Cell):
    """Multi-head attention as a port writes it: three projections, or one of three times the
    width.
    """

    def __init__(self, names="qkv", fused=False):
        super().__init__()
        self.names, self.fused = names, fused
        for name in names:
            setattr(self, name, nn.Dense(8, 24 if fused else 8))
        self.proj = nn.Dense(8, 8)

    def construct(self, x):
        n, length, width = x.shape
        parts = [getattr(self, name)(x) for name in self.names]
        if self.fused:
            parts = ops.split(parts[0], width, 2)
        q, k, v = (part.reshape(n, length, 2, 4).transpose(0, 2, 1, 3) for part in parts)
        scores = ops.softmax(ops.matmul(q, k.swapaxes(2, 3)) / 2, -1)
        return self.proj(ops.matmul(scores, v).transpose(0, 2, 1, 3).reshape(n, length, width))


def self_attention():
    """The same in torch."""
    attn = t.MultiheadAttention(8, 2, batch_first=True)
    t.init.normal_(attn.in_proj_bias)
    return module(lambda self, x: self.attn(x, x, x)[0], attn=attn)


def timms_attention():
    def forward(self, x):
        n, length, width = x.shape
        q, k, v = self.qkv(x).reshape(n, length, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        out = t.functional.scaled_dot_product_attention(q, k, v)
        return self.proj(out.transpose(1, 2).reshape(n, length, width))

    return module(forward, qkv=t.Linear(8, 24), proj=t.Linear(8, 8))


def own_attention(heads=2):
    """MindSpore's own layer."""
    attn = nn.MultiheadAttention(8, heads, batch_first=True)
    return cell(lambda self, x: self.attn(x, x, x)[0], attn=attn)


def frozen_norm():
    """A LayerNorm without gamma and beta, which MindSpore's always has."""
    norm = layer_norm()
    norm.gamma.requires_grad = norm.beta.requires_grad = False
    return cell(lambda self, x: self.norm(x), norm=norm)


def deconv(**options):
    return nn.Conv2dTranspose(4, 6, 3, 2, pad_mode="pad", has_bias=True, **options)


def same(inputs, name, *sizes, **options):
    """A layer that has one name and the same arguments in both."""
    return (
        inputs,
        partial(getattr(t, name), *sizes, **options),
        partial(getattr(nn, name), *sizes, **options),
    )


# inputs, torch's layer and its right port
KINDS = {
    "Conv1d": (
        SIGNAL,
        lambda: t.Conv1d(4, 6, 3, 2, 1),
        lambda: nn.Conv1d(4, 6, 3, 2, has_bias=True, **PADDED),
    ),
    "Conv2d": (
        IMAGE,
        lambda: t.Conv2d(4, 6, 3, 2, 1),
        lambda: nn.Conv2d(4, 6, 3, 2, has_bias=True, **PADDED),
    ),
    "Conv2d, depthwise": (
        IMAGE,
        lambda: t.Conv2d(4, 8, 3, padding="same", groups=4, bias=False),
        lambda: nn.Conv2d(4, 8, 3, group=4),
    ),
    "Conv3d": (
        VOLUME,
        lambda: t.Conv3d(4, 6, 3, padding=1),
        lambda: nn.Conv3d(4, 6, 3, has_bias=True, **PADDED),
    ),
    "ConvTranspose1d": (
        SIGNAL,
        lambda: t.ConvTranspose1d(4, 6, 3, 2, 1),
        lambda: nn.Conv1dTranspose(4, 6, 3, 2, has_bias=True, **PADDED),
    ),
    "ConvTranspose2d, output padding": (
        IMAGE,
        lambda: t.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1),
        lambda: deconv(padding=(1, 0, 1, 0)),
    ),
    "ConvTranspose2d, groups": (
        IMAGE,
        lambda: t.ConvTranspose2d(4, 4, 3, 2, 1, groups=2, bias=False),
        lambda: nn.Conv2dTranspose(4, 4, 3, 2, group=2, **PADDED),
    ),
    "ConvTranspose3d": (
        VOLUME,
        lambda: t.ConvTranspose3d(4, 6, 3, 2, 1, output_padding=1, bias=False),
        lambda: nn.Conv3dTranspose(4, 6, 3, 2, output_padding=1, **PADDED),
    ),
    "BatchNorm1d": same(VECTORS, "BatchNorm1d", 4),
    "BatchNorm2d": same(IMAGE, "BatchNorm2d", 4),
    "BatchNorm3d": same(VOLUME, "BatchNorm3d", 4),
    "LayerNorm": (TOKENS, lambda: t.LayerNorm(8), layer_norm),
    "LayerNorm, the axes": (TOKENS, lambda: t.LayerNorm(8), layer_norm),
    "LayerNorm without parameters": (
        TOKENS,
        lambda: t.LayerNorm(8, elementwise_affine=False),
        frozen_norm,
    ),
    "GroupNorm": same(IMAGE, "GroupNorm", 2, 4),
    "InstanceNorm2d": (IMAGE, lambda: t.InstanceNorm2d(4, affine=True), lambda: nn.GroupNorm(4, 4)),
    "Linear": (TOKENS, lambda: t.Linear(8, 3), lambda: nn.Dense(8, 3)),
    "Embedding": same(IDS, "Embedding", 6, 4, padding_idx=0),
    "MultiheadAttention": (TOKENS, self_attention, own_attention),
    "MultiheadAttention, q, k, v apart": (TOKENS, self_attention, Attention),
    "MultiheadAttention, other names": (
        TOKENS,
        self_attention,
        lambda: Attention("abc"),
    ),
    "MultiheadAttention, one projection": (
        TOKENS,
        self_attention,
        lambda: Attention(["qkv"], fused=True),
    ),
    "one projection (timm), q, k, v apart": (TOKENS, timms_attention, Attention),
    "LSTM": same(TOKENS, "LSTM", 8, 6, batch_first=True),
    "LSTM, two layers, both directions": same(
        TOKENS, "LSTM", 8, 6, 2, batch_first=True, bidirectional=True
    ),
    "GRU": same(TOKENS, "GRU", 8, 6, batch_first=True),
    "RNN": same(TOKENS, "RNN", 8, 6, batch_first=True),
    "MaxPool1d": (SIGNAL, lambda: t.MaxPool1d(3, 2, 1), lambda: nn.MaxPool1d(3, 2, **PADDED)),
    "MaxPool2d, ceil_mode": (
        IMAGE,
        lambda: t.MaxPool2d(3, 2, ceil_mode=True),
        lambda: nn.MaxPool2d(3, 2, pad_mode="pad", ceil_mode=True),
    ),
    "MaxPool3d": same(VOLUME, "MaxPool3d", 2, 2),
    "AvgPool1d": same(SIGNAL, "AvgPool1d", 3, 2),
    "AvgPool2d, count_include_pad": (
        IMAGE,
        lambda: t.AvgPool2d(3, 2, 1, count_include_pad=False),
        lambda: nn.AvgPool2d(3, 2, count_include_pad=False, **PADDED),
    ),
    "AvgPool3d": same(VOLUME, "AvgPool3d", 2, 2),
    "AdaptiveAvgPool1d": (SIGNAL, lambda: t.AdaptiveAvgPool1d(3), lambda: nn.AvgPool1d(3, 3)),
    "AdaptiveAvgPool2d": same(IMAGE, "AdaptiveAvgPool2d", 3),
    "AdaptiveAvgPool2d, global": (IMAGE, lambda: t.AdaptiveAvgPool2d(1), lambda: nn.AvgPool2d(8)),
    "AdaptiveAvgPool3d": same(VOLUME, "AdaptiveAvgPool3d", 1),
    "AdaptiveMaxPool2d": same(IMAGE, "AdaptiveMaxPool2d", 2),
    "GELU": (TOKENS, t.GELU, lambda: nn.GELU(approximate=False)),
    "GELU, tanh": (TOKENS, lambda: t.GELU("tanh"), nn.GELU),
    "SiLU": same(TOKENS, "SiLU"),
    "Hardswish": (TOKENS, t.Hardswish, nn.HSwish),
    "Hardsigmoid": (TOKENS, t.Hardsigmoid, nn.HSigmoid),
    "PReLU": same(IMAGE, "PReLU", 4),
    "LeakyReLU": (TOKENS, t.LeakyReLU, lambda: nn.LeakyReLU(0.01)),
    "ELU": same(TOKENS, "ELU"),
    "ReLU6": same(TOKENS, "ReLU6"),
    "Softmax": (TOKENS, lambda: t.Softmax(-1), nn.Softmax),
    "LogSoftmax": (TOKENS, lambda: t.LogSoftmax(-1), nn.LogSoftmax),
    "Mish": same(TOKENS, "Mish"),
    "Upsample, nearest": (
        IMAGE,
        lambda: t.Upsample(scale_factor=2),
        lambda: nn.Upsample(scale_factor=(2.0, 2.0), recompute_scale_factor=True),
    ),
    "Upsample, bilinear": (
        IMAGE,
        lambda: t.Upsample(scale_factor=2, mode="bilinear"),
        lambda: nn.Upsample(size=(16, 16), mode="bilinear", align_corners=False),
    ),
}
# By a kind's name: its port with another setting, and the note on it, without " in the reference".
# Others are in test_faults.py.
WRONG = {
    "Conv1d": (
        lambda: nn.Conv1d(4, 6, 3, 2, has_bias=True, pad_mode="valid"),
        "pad_mode valid pads 0/0, the reference 1/1",
    ),
    "Conv2d": (
        lambda: nn.Conv2d(4, 6, 3, 2, has_bias=True),
        "pad_mode same pads 0/1, the reference 1/1",
    ),
    "Conv2d, depthwise": (
        lambda: nn.Conv2d(4, 8, 3, group=4, dilation=2),
        "dilation (2, 2) in the port, (1, 1)",
    ),
    "Conv3d": (
        lambda: nn.Conv3d(4, 6, 3, stride=2, has_bias=True, **PADDED),
        "stride (2, 2, 2) in the port, (1, 1, 1)",
    ),
    "ConvTranspose1d": (
        lambda: nn.Conv1dTranspose(4, 6, 3, 2, pad_mode="same", has_bias=True),
        "pad_mode same cuts off 0/1, the reference 1/1",
    ),
    "ConvTranspose2d, output padding": (
        lambda: deconv(padding=1, output_padding=1),
        "output_padding 1 appends zeros in the port where torch computes outputs; torch's is padding=(1, "
        "0, 1, 0)",
    ),
    "ConvTranspose3d": (
        lambda: nn.Conv3dTranspose(4, 6, 3, 2, **PADDED),
        "pad_mode pad cuts off 1/1, the reference 1/0",
    ),
    "BatchNorm1d": (
        lambda: nn.BatchNorm1d(4, momentum=0.1),
        "momentum inverted: BatchNorm(momentum=0.1) keeps 0.1 of the old statistics in MindSpore; "
        "torch's "
        "momentum=0.1 is momentum=0.9 in the port",
    ),
    "BatchNorm2d": (
        lambda: nn.BatchNorm2d(4, use_batch_statistics=False),
        "batch_statistics never in the port, in training",
    ),
    "LayerNorm": (lambda: nn.LayerNorm((8,)), "eps 1e-07 in the port, 1e-05"),
    "LayerNorm, the axes": (
        lambda: nn.LayerNorm((8,), begin_norm_axis=1, epsilon=1e-5),
        "normalized_shape (5, 8) in the port, (8,)",
    ),
    "GroupNorm": (lambda: nn.GroupNorm(4, 4), "num_groups 4 in the port, 2"),
    "Linear": (
        lambda: nn.Dense(8, 3, activation="tanh"),
        "an activation Tanh() after it, none in the reference",
    ),
    "Embedding": (lambda: nn.Embedding(6, 4), "padding_idx None in the port, 0"),
    "MultiheadAttention": (lambda: own_attention(4), "num_heads 4 in the port, 2"),
    "LSTM": (lambda: nn.LSTM(8, 6), "batch_first False in the port, True"),
    "RNN": (
        lambda: nn.RNN(8, 6, batch_first=True, nonlinearity="relu"),
        "nonlinearity relu in the port, tanh",
    ),
    "MaxPool1d": (lambda: nn.MaxPool1d(3, 2), "pad_mode valid pads 0/0, the reference 1/1"),
    "MaxPool2d, ceil_mode": (lambda: nn.MaxPool2d(3, 2), "ceil_mode False in the port, True"),
    "AvgPool1d": (lambda: nn.AvgPool1d(3, 3), "stride (3,) in the port, (2,)"),
    "AdaptiveAvgPool2d": (
        lambda: nn.AdaptiveAvgPool2d(5),
        "output_size (5, 5) in the port, (3, 3)",
    ),
    "GELU": (nn.GELU, "approximate tanh in the port, none"),
    "GELU, tanh": (nn.FastGelu, "approximate sigmoid in the port, tanh"),
    "SiLU": (nn.ReLU, "it is ReLU in the port, SiLU"),
    "LeakyReLU": (nn.LeakyReLU, "slope 0.2 in the port, 0.01"),
    "Upsample, nearest": (
        lambda: nn.Upsample(size=(16, 16), mode="bilinear", align_corners=False),
        "mode bilinear in the port, nearest",
    ),
}


def behind_another(make, framework, dense, inputs, layer, names=("first", "layer"), **options):
    """A net with a layer of fixed shape before this one, which may have no parameters."""
    if inputs.ndim > 2 and inputs.shape[1] == 4:
        first = getattr(framework, f"Conv{inputs.ndim - 2}d")(4, 4, 1, **options)
    else:
        first = dense(8, 8) if inputs.ndim == 3 else framework.Identity()

    def forward(self, x):
        for name in names:
            x = getattr(self, name)(x)
        return x[0] if isinstance(x, tuple) else x

    return make(forward, **dict(zip(names, (first, layer), strict=True)))


reference_of = partial(behind_another, module, t, t.Linear)
port_of = partial(behind_another, cell, nn, nn.Dense, has_bias=True)


@pytest.fixture(scope="module")
def compared(paired):
    """compared(kind, port, names): the name map, and the layers of both sides, with the reference's
    weights.

    `names` are the port's, by default the reference's.
    """

    @cache
    def compare(kind, port, names=("first", "layer")):
        inputs, theirs, _ = KINDS[kind]
        net, reference = port_of(inputs, port(), names), reference_of(inputs, theirs())
        pairs, ours, theirs = paired(net, reference, inputs, ("eval",))
        return pairs, ours["eval"], theirs["eval"]

    return compare


@pytest.mark.parametrize("kind", KINDS)
def test_right_ports_are_matched_and_compute_the_same(compared, kind):
    inputs, _, port = KINDS[kind]
    for names in (("first", "layer"), ("body", "head")):
        pairs, ours, theirs = compared(kind, port, names)
        layers = compare_layers({"eval": ours}, {"eval": theirs}, pairs.layers)
        assert pairs.problems == (), names
        left_out = (
            {f"{names[1]}.norm.gamma", f"{names[1]}.norm.beta"} if port is frozen_norm else set()
        )
        assert {*pairs.parameters} == {*state(port_of(inputs, port(), names))} - left_out
        assert settings_notes(ours, theirs, pairs.layers) == [], names
        assert layers[-1].name.startswith(names[1]), [layer.name for layer in layers]
        for layer in layers:
            assert layer.output.relative < 1e-5, (names, layer)


def matrix(compared):
    """The table of docs/parity.md: what is compared of each kind, by the recorder."""
    rows = ["| PyTorch | MindSpore | settings | initialisation |", "|---|---|---|---|"]
    for kind, (_, _, port) in KINDS.items():
        names, ours, theirs = compared(kind, port)
        ours = [layer for layer in ours if layer.name.startswith("layer")]
        by_name = {layer.name: layer for layer in theirs if layer.name.startswith("layer")}
        pairs = [
            (layer, by_name[names.layers[layer.name]])
            for layer in ours
            if names.layers.get(layer.name) in by_name
        ]
        both = {
            key
            for layer, other in pairs
            if layer.kind == other.kind
            for key in layer.settings.keys() & other.settings.keys()
        }
        classes = " + ".join(dict.fromkeys(layer.class_name for layer in ours if layer.leaf))
        settings = ", ".join(f"`{name}`" for name in sorted(both))
        if not settings:
            has_settings = any(layer.settings for layer in pairs[-1])
            settings = "none: its output" if has_settings else "its class"
        arrays = [name for name in names.parameters if name.startswith("layer")]
        rows.append(f"| {kind} | {classes} | {settings} | {len(arrays) or 'nothing to draw'} |")
    return "\n".join(rows)


def test_the_table_in_the_docs_is_this_one(compared, table_in_docs):
    assert "\n".join(table_in_docs(__file__, "layer kinds")) == matrix(compared)


@pytest.mark.parametrize("name", WRONG)
def test_a_setting_that_differs_is_named(compared, name):
    wrong, note = WRONG[name]
    names, ours, theirs = compared(name, wrong)
    (line,) = settings_notes(ours, theirs, names.layers)
    assert note + " in the reference" * (" in the port, " in note) in line


@pytest.mark.parametrize("kind", KINDS)
def test_each_kinds_initialisation_is_compared(compared, kind):
    inputs, layer, port = KINDS[kind]
    names, _, _ = compared(kind, port)
    states = [torch_state(reference_of(inputs, layer())) for _ in range(2)]
    ours, theirs = map(names.rename, states)
    assert initial_stage([ours], [theirs]).verdict in ("ok", "skipped")
    for name in ours:
        stage = initial_stage([{**ours, name: 100 * ours[name] + 1}], [theirs])
        if ours[name].size >= 8 or not ours[name].std():
            assert stage.verdict == "DIFFERS", name
            assert {re.split("[: ]", hint)[0] for hint in stage.hints} == {name}
