"""How two paired layers are set differently is said in words."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import mint, nn

from resnet_fn.parity.compare.notes import settings_differences, settings_notes, unmatched_notes
from resnet_fn.parity.record.kinds import kind_of
from resnet_fn.parity.record.layer_settings import settings_of
from resnet_fn.parity.trace.layer import Layer
from small_nets import custom

IMAGES = np.random.default_rng(0).normal(size=(4, 3, 12, 12)).astype(np.float32)


def layer(cell_or_module, x=IMAGES, output=None, name="x", parameters=()):
    """One execution of it, by default on 12 x 12 pixels."""
    kind, class_name = kind_of(cell_or_module), type(cell_or_module).__name__
    settings = settings_of(cell_or_module, x)
    return Layer(name, 0, kind, class_name, settings, x, output, parameters, True)


def test_max_pools_over_equal_places_count_as_equal(torch):
    """MindCV's GoogLeNet has `same` where torchvision's has ceil_mode: on an even size that is one
    function.
    """
    x = -1 - np.abs(IMAGES)

    def compare(ours, theirs):
        outputs = ours(ms.Tensor(x)).asnumpy(), theirs(torch.from_numpy(x)).numpy()
        sides = [layer(pool, x, y) for pool, y in zip((ours, theirs), outputs, strict=True)]
        return np.array_equal(*outputs), settings_differences(*sides)

    ceil = torch.nn.MaxPool2d(3, 2, ceil_mode=True)
    same = nn.MaxPool2d(3, 2, pad_mode="same")
    assert compare(same, ceil) == (True, [])
    ceil_mode = "ceil_mode False in the port, True in the reference"
    assert compare(nn.MaxPool2d(3, 2), ceil) == (False, [ceil_mode])
    pads = "pad_mode same pads 0/1, the reference 1/1"
    assert compare(same, torch.nn.MaxPool2d(3, 2, 1)) == (False, [pads])


def test_unpaired_nets_are_compared_by_order_or_name(torch):
    def named(*layers, prefix=""):
        return [layer(each, name=f"{prefix}{place}") for place, each in enumerate(layers)]

    theirs = named(torch.nn.Conv2d(3, 4, 3, bias=False), torch.nn.ReLU(), torch.nn.MaxPool2d(2))
    ours = nn.Conv2d(3, 4, 5, pad_mode="valid"), nn.ReLU(), nn.MaxPool2d(2, 2)
    note = "kernel_size (5, 5) in the port, (3, 3) in the reference"
    assert unmatched_notes(named(*ours, prefix="body."), theirs) == [f"body.0: {note}"]
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
        layer(pool, image, pool(make(image)).numpy())
        for pool, make, image in ((ours, ms.Tensor, x), (theirs(torch.nn), torch.from_numpy, x + 1))
    ]
    assert settings_differences(*sides) == []
    assert len(settings_differences(*sides, probed=True)) == 1


def test_settings_the_input_does_not_show_are_named(torch):
    """A kernel of three on one place, whose zeros are all that a stride or dilation would move it
    to.
    """
    x = np.ones((4, 3, 1, 1), np.float32)
    ours = nn.Conv2d(3, 3, 3, 1, "pad", 1)
    theirs = torch.nn.Conv2d(3, 3, 3, 2, padding=2, dilation=2)
    notes = settings_differences(layer(ours, x, x), layer(theirs, x, x))
    assert [note.split()[0] for note in notes] == ["stride", "dilation", "bias"]


def test_layers_of_different_kinds_are_named(torch):
    weight = (("weight", (8, 8, 3, 3)),)
    ours, theirs = nn.Conv2d(8, 8, 3), torch.nn.ConvTranspose2d(8, 8, 3, padding=1)
    sides = layer(ours, parameters=weight), layer(theirs, parameters=weight)
    kinds = "it is Conv2d in the port, ConvTranspose2d in the reference"
    assert settings_differences(*sides) == [kinds]
    sides = layer(nn.Dense(8, 8, activation="relu")), layer(torch.nn.Conv2d(8, 8, 1))
    activation = "an activation ReLU() after it, none in the reference"
    assert settings_differences(*sides) == [activation]


def test_custom_layers_are_not_accused_by_name(torch):
    """MindCV's GlobalAvgPooling is torch's AdaptiveAvgPool2d(1): their outputs must show it."""
    t = torch.nn
    for ours, theirs in (
        (custom("GlobalAvgPooling"), t.AdaptiveAvgPool2d(1)),
        (custom("GroupNorm", eps=1e-5, groups=2), t.GroupNorm(2, 4)),
        (
            custom("Conv2d", kernel_size=3, stride=1, dilation=1, bias=None),
            t.Conv2d(3, 4, 3, bias=False),
        ),
    ):
        assert settings_notes([layer(ours)], [layer(theirs)], {"x": "x"}) == []


MINT = {
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
    "AvgPool1d": ((3,), {}),  # without a stride
    "AvgPool2d": ((3, 2), {"padding": 1, "count_include_pad": False}),
    "AdaptiveAvgPool2d": ((3,), {}),
    "GELU": ((), {}),
    "ELU": ((0.5,), {}),
    "Softmax": ((-1,), {}),
    "Hardtanh": ((-2.0, 2.0), {}),
    "Upsample": ((), {"scale_factor": 2, "mode": "bilinear", "align_corners": True}),
    "UpsamplingBilinear2d": ((), {"size": (5, 5)}),
    "Dropout": ((0.3,), {}),
}


@pytest.mark.parametrize("name", MINT)
def test_mints_classes_are_described_as_torchs(name, torch):
    """Few of them run on a CPU, but a port to Ascend is made of them."""
    places, names = MINT[name]
    size = (2, 4, 5, 6, 7) if "3d" in name else (2, 4, 8, 8)
    sides = [getattr(module, name)(*places, **names) for module in (mint.nn, torch.nn)]
    ours, theirs = ({**settings_of(side, np.zeros(size)), "pad_mode": ""} for side in sides)
    assert ours == theirs
    assert kind_of(sides[0]) == kind_of(sides[1])
