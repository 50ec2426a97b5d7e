"""The layer where two nets part is named with how it is set; padding is what the kernels do."""

import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from resnet_fn.parity import mindspore_run, torch_run
from resnet_fn.parity.layers import compare_layers, mindspore_pads, settings_differences, settings_notes, torch_pads
from resnet_fn.parity.match import match
from resnet_fn.parity.record import Layer, record_cell, record_torch

pytestmark = pytest.mark.usefixtures("device")

IMAGES = np.random.default_rng(0).normal(size=(4, 3, 12, 12)).astype(np.float32)
# height and width, kernel, stride, dilation
SIZES = [((7, 8), 3, 2, 1), ((6, 9), 3, 1, 1), ((8, 8), 1, 2, 1), ((9, 12), (5, 3), (2, 3), 1), ((9, 8), 3, 1, 2)]


@pytest.mark.parametrize(("size", "kernel", "stride", "dilation"), SIZES)
def test_same_padding_is_that_many_zeros(size, kernel, stride, dilation):
    images = np.random.default_rng(1).normal(size=(2, 3, *size)).astype(np.float32)
    same = nn.Conv2d(3, 4, kernel, stride, pad_mode="same", dilation=dilation)
    valid = nn.Conv2d(3, 4, kernel, stride, pad_mode="valid", dilation=dilation)
    ops.assign(valid.weight, same.weight)
    top, bottom, left, right = mindspore_pads(same, size)
    padded = np.pad(images, ((0, 0), (0, 0), (top, bottom), (left, right)))
    np.testing.assert_allclose(same(Tensor(images)).asnumpy(), valid(Tensor(padded)).asnumpy(), atol=1e-5)
    assert mindspore_pads(valid, size) == (0, 0, 0, 0)


def test_padding_as_it_is_given():
    assert mindspore_pads(nn.Conv2d(3, 4, 3, pad_mode="pad", padding=(1, 2, 3, 4)), (8, 8)) == (1, 2, 3, 4)
    assert mindspore_pads(nn.Conv2d(3, 4, 3, pad_mode="pad", padding=1), (8, 8)) == (1, 1, 1, 1)
    assert mindspore_pads(nn.MaxPool2d(3, 2, pad_mode="pad", padding=1), (8, 8)) == (1, 1, 1, 1)


@pytest.mark.parametrize(("size", "kernel", "stride", "dilation"), SIZES)
def test_torch_padding_is_that_many_zeros(torch, size, kernel, stride, dilation):
    images = torch.randn(2, 3, *size)
    for padding in [(1, 2), 0, "valid", *(["same"] if stride == 1 else [])]:
        conv = torch.nn.Conv2d(3, 4, kernel, stride, padding, dilation)
        top, bottom, left, right = torch_pads(conv)
        padded = torch.nn.functional.pad(images, (left, right, top, bottom))
        expected = torch.nn.functional.conv2d(padded, conv.weight, conv.bias, stride, 0, dilation)
        assert torch.allclose(conv(images), expected, atol=1e-5)


def layer(kind, layer_, images=IMAGES):
    return Layer("x", 0, kind, layer_, images, images, (), True)


def test_settings_that_differ_are_named(torch):
    def found(kind, ours, theirs):
        return settings_differences(layer(kind, ours), layer(kind, theirs))

    conv = torch.nn.Conv2d(3, 4, 3, 2, 1, bias=False)
    assert found("conv", nn.Conv2d(3, 4, 3, 2), conv) == ["pad_mode same pads 0/1, the reference 1/1"]
    assert found("conv", nn.Conv2d(3, 4, 3, 2, pad_mode="pad", padding=1), conv) == []
    assert found("conv", nn.Conv2d(3, 4, 3), torch.nn.Conv2d(3, 4, 3, 1, 1, bias=False)) == []  # stride 1: 1/1 too
    assert found("conv", nn.Conv2d(3, 4, 5, has_bias=True), conv) == [
        "kernel_size (5, 5) here, (3, 3) in the reference",
        "stride (1, 1) here, (2, 2) in the reference",
        "bias True here, False in the reference",
    ]
    assert found("maxpool", nn.MaxPool2d(3, 2), torch.nn.MaxPool2d(3, 2, 1)) == [
        "pad_mode valid pads 0/0, the reference 1/1"
    ]
    assert found("dense", nn.Dense(4, 2, activation="relu"), torch.nn.Linear(4, 2, bias=False)) == [
        "bias True here, False in the reference",
        "an activation ReLU() after it, none in the reference",
    ]
    assert found("norm", nn.BatchNorm2d(4, eps=1e-3, momentum=0.9), torch.nn.BatchNorm2d(4)) == [
        "eps 0.001 here, 1e-05 in the reference"
    ]
    assert found("norm", nn.BatchNorm2d(4, momentum=0.8), torch.nn.BatchNorm2d(4)) == [
        "momentum=0.8 here; torch's momentum=0.1 is momentum=0.9 here"
    ]
    assert settings_differences(layer("conv", nn.Conv2d(3, 4, 3)), layer("dense", torch.nn.Linear(4, 2))) == [
        "it is Conv2d here, Linear in the reference"
    ]


def compared(net, module):
    """Both with the module's weights."""
    ours, theirs = mindspore_run.state(net), torch_run.state(module)
    recorded = record_cell(net, IMAGES, False), record_torch(module, IMAGES, False)
    shapes = [{name: value.shape for name, value in side.items()} for side in (ours, theirs)]
    names = match(*shapes, *recorded)
    mindspore_run.assign(net, {a: theirs[b] for a, b in names.parameters.items()})
    return compare_layers(net, module, IMAGES, names), settings_notes(*recorded, names)


def test_layers_of_equal_nets_agree_in_both_modes(ported, reference):
    layers, notes = compared(ported(), reference())
    assert notes == []
    assert {item.output.verdict for item in layers} <= {"ok", "rounding"}
    for mode in ("eval", "train"):
        names = [item.name for item in layers if item.mode == mode]
        assert names == ["stem", "bn_a", "short.0", "short.1", "body", "bn_b", "classify"]


def test_a_layer_set_otherwise_is_named(ported, reference):
    net = ported()
    net.body = nn.Conv2d(8, 8, 3, pad_mode="pad", padding=(2, 0, 1, 1))
    layers, notes = compared(net, reference())
    first = next(item for item in layers if item.output.verdict == "DIFFERS")
    assert (first.mode, first.name, first.theirs) == ("eval", "body", "inner")
    assert first.hints == ("pad_mode pad pads 2/0 rows, 1/1 columns, the reference 1/1",)
    assert notes == [f"body: {first.hints[0]}"]
    assert first.sign_changes > 0


def test_a_function_between_layers_is_told_from_a_layer(ported, reference):
    layers, notes = compared(ported(shift=0.2), reference())
    first = next(item for item in layers if item.output.verdict == "DIFFERS")
    assert (first.mode, first.name, first.theirs) == ("eval", "body", "inner")
    assert first.hints == (
        "its input differs already and no earlier layer's output does: look at what happens between the layers (a "
        "function, a sum, a concatenation)",
    )
    assert notes == []
