"""How two paired layers are set differently is said in words."""

import dataclasses

import mindspore as ms
import numpy as np
import pytest
from mindspore import mint, nn

from resnet_fn.parity.compare.notes import settings_differences, settings_notes, unmatched_notes
from resnet_fn.parity.record.kinds import kind_of
from resnet_fn.parity.record.layer_settings import settings_of
from resnet_fn.parity.trace.layer import Layer

IMAGES = np.random.default_rng(0).normal(size=(4, 3, 12, 12)).astype(np.float32)


def layer(cell_or_module, output=None):
    """One execution of it, on 12 x 12 pixels."""
    kind, class_name = kind_of(cell_or_module), type(cell_or_module).__name__
    return Layer(
        "x", 0, kind, class_name, settings_of(cell_or_module, IMAGES), IMAGES, output, (), True
    )


def test_max_pools_over_equal_places_count_as_equal(torch):
    """MindCV's GoogLeNet has `same` where torchvision's has ceil_mode: on an even size that is one
    function.
    """
    x = -1 - np.abs(IMAGES)

    def compare(ours, theirs):
        outputs = ours(ms.Tensor(x)).asnumpy(), theirs(torch.from_numpy(x)).numpy()
        return np.array_equal(*outputs), settings_differences(
            layer(ours, outputs[0]), layer(theirs, outputs[1])
        )

    ceil = torch.nn.MaxPool2d(3, 2, ceil_mode=True)
    assert compare(nn.MaxPool2d(3, 2, pad_mode="same"), ceil) == (True, [])
    assert compare(nn.MaxPool2d(3, 2), ceil) == (
        False,
        ["ceil_mode False in the port, True in the reference"],
    )
    assert compare(nn.MaxPool2d(3, 2, pad_mode="same"), torch.nn.MaxPool2d(3, 2, 1)) == (
        False,
        ["pad_mode same pads 0/1, the reference 1/1"],
    )


def test_unpaired_nets_are_compared_by_order_or_name(torch):
    def named(*layers):
        return [
            dataclasses.replace(layer(one), name=str(place)) for place, one in enumerate(layers)
        ]

    theirs = named(torch.nn.Conv2d(3, 4, 3, bias=False), torch.nn.ReLU(), torch.nn.MaxPool2d(2))
    ours = nn.Conv2d(3, 4, 5, pad_mode="valid"), nn.ReLU(), nn.MaxPool2d(2, 2)
    others = [dataclasses.replace(one, name=f"body.{one.name}") for one in named(*ours)]
    note = "kernel_size (5, 5) in the port, (3, 3) in the reference"
    assert unmatched_notes(others, theirs) == [f"body.0: {note}"]
    assert unmatched_notes(named(ours[0], ours[2]), theirs) == [f"0: {note}"]  # a layer is missing


POOLS = {
    "an adaptive pool": (nn.AvgPool2d(12), lambda t: t.AdaptiveAvgPool2d(1), 12),
    "one window": (nn.AvgPool2d(12, 1), lambda t: t.AvgPool2d(12), 12),
    "an odd size": (nn.MaxPool2d(3, 2), lambda t: t.MaxPool2d(3, 2, ceil_mode=True), 11),
}


@pytest.mark.parametrize("name", POOLS)
def test_equivalent_pools_are_never_accused(name, torch):
    ours, theirs, size = POOLS[name]
    x = IMAGES[..., :size, :size]
    sides = [
        dataclasses.replace(layer(pool), input=image, output=pool(make(image)).numpy())
        for pool, make, image in ((ours, ms.Tensor, x), (theirs(torch.nn), torch.from_numpy, x + 1))
    ]
    assert settings_differences(*sides) == []
    assert len(settings_differences(*sides, probed=True)) == 1


def test_settings_the_input_does_not_show_are_named(torch):
    """A kernel of three on one place, whose zeros are all that a stride or dilation would move it
    to.
    """
    x = np.ones((4, 3, 1, 1), np.float32)
    sides = [
        dataclasses.replace(layer(conv), settings=settings_of(conv, x), input=x, output=x)
        for conv in (
            nn.Conv2d(3, 3, 3, 1, "pad", 1),
            torch.nn.Conv2d(3, 3, 3, 2, padding=2, dilation=2),
        )
    ]
    assert [note.split()[0] for note in settings_differences(*sides)] == [
        "stride",
        "dilation",
        "bias",
    ]


def test_layers_of_different_kinds_are_named(torch):
    sides = nn.Conv2d(8, 8, 3), torch.nn.ConvTranspose2d(8, 8, 3, padding=1)
    a, b = (
        dataclasses.replace(layer(one), parameters=(("weight", (8, 8, 3, 3)),)) for one in sides
    )
    assert settings_differences(a, b) == [
        "it is Conv2d in the port, ConvTranspose2d in the reference"
    ]
    a, b = layer(nn.Dense(8, 8, activation="relu")), layer(torch.nn.Conv2d(8, 8, 1))
    assert settings_differences(a, b) == ["an activation ReLU() after it, none in the reference"]


def test_custom_layers_are_not_accused_by_name(torch):
    """MindCV's GlobalAvgPooling is torch's AdaptiveAvgPool2d(1): their outputs must show it."""

    class GlobalAvgPooling(nn.Cell):
        def construct(self, x):
            return x.mean((2, 3))

    class GroupNorm(nn.Cell):
        def __init__(self):
            super().__init__()
            self.eps, self.groups = 1e-5, 2

    class Conv2d(nn.Cell):
        def __init__(self):
            super().__init__()
            self.kernel_size, self.stride, self.dilation, self.bias = 3, 1, 1, None

    t = torch.nn
    for ours, theirs in (
        (GlobalAvgPooling(), t.AdaptiveAvgPool2d(1)),
        (GroupNorm(), t.GroupNorm(2, 4)),
        (Conv2d(), t.Conv2d(3, 4, 3, bias=False)),
    ):
        assert settings_notes([layer(ours)], [layer(theirs)], {"x": "x"}) == []


MINT = {
    "Conv1d": ((4, 6, 3), {"stride": 2, "padding": 1}),
    "Conv2d": (
        (4, 6, 3),
        {"padding": "same", "groups": 2, "bias": False, "padding_mode": "reflect"},
    ),
    "Conv3d": ((4, 6, (3, 2, 3)), {"padding": (1, 0, 1)}),
    "ConvTranspose2d": ((4, 6, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
    "BatchNorm2d": ((4,), {"eps": 1e-3, "momentum": 0.3}),
    "LayerNorm": ((8,), {}),
    "GroupNorm": ((2, 4), {}),
    "Linear": ((8, 3), {"bias": False}),
    "Embedding": ((6, 4), {"padding_idx": 0}),
    "MaxPool2d": ((3, 2), {"padding": 1, "ceil_mode": True}),
    "AvgPool1d": ((3,), {}),
    "AvgPool2d": ((3, 2), {"padding": 1, "count_include_pad": False}),
    "AdaptiveAvgPool2d": ((3,), {}),
    "GELU": ((), {}),
    "ELU": ((0.5,), {}),
    "Softmax": ((-1,), {}),
    "LogSoftmax": ((1,), {}),
    "Hardtanh": ((-2.0, 2.0), {}),
    "Upsample": ((), {"scale_factor": 2, "mode": "bilinear", "align_corners": True}),
    "UpsamplingBilinear2d": ((), {"size": (5, 5)}),
    "Dropout": ((0.3,), {}),
}


@pytest.mark.parametrize("name", MINT)
def test_mints_classes_are_described_as_torchs(name, torch):
    """Few of them run on a CPU, but a port to Ascend is made of them."""
    places, names = MINT[name]
    size = {"1": (2, 4, 9), "2": (2, 4, 8, 8), "3": (2, 4, 5, 6, 7)}.get(name[-2], (2, 4, 8, 8))
    inputs = np.zeros(size)
    ours, theirs = (
        getattr(mint.nn, name)(*places, **names),
        getattr(torch.nn, name)(*places, **names),
    )
    found, expected = settings_of(ours, inputs), settings_of(theirs, inputs)
    assert kind_of(ours) == kind_of(theirs)
    assert {**found, "pad_mode": ""} == {**expected, "pad_mode": ""}
