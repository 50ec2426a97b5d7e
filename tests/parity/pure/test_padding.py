"""What two convolutions see at the border: by how much they pad, and with which numbers."""

import numpy as np
import pytest

from resnet_fn.parity.compare.notes import settings_differences
from resnet_fn.parity.compare.padding import kind_of_padding
from resnet_fn.parity.trace.layer import Layer

X = np.random.default_rng(0).normal(size=(2, 3, 8)).astype(np.float32)
WAYS = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def conv(pads, mode="zeros", x=X, output=None, **settings):
    settings = {"kernel_size": (3,), "pads": pads, "padding_mode": mode, **settings}
    return Layer("conv", 0, "conv", "Conv1d", settings, x, output, (), True)


def padded(kind, pads=(2, 2)):
    return np.pad(X, ((0, 0), (0, 0), pads), mode=WAYS[kind])


@pytest.mark.parametrize("kind", ["reflect", "replicate", "circular"])
def test_another_kind_of_padding_has_its_name(kind):
    before, inside = conv((0, 0), x=padded(kind), output=-X), conv((2, 2), kind, output=-X)
    same = conv((2, 2), output=X, pad_mode="same")
    words = f"padding by zeros in the port, by {kind} in the reference"
    assert settings_differences(same, before) == [words]
    assert settings_differences(conv((0, 0), x=padded("zeros"), output=X), inside) == [words]
    words = f"padding_mode zeros in the port, {kind} in the reference"
    assert settings_differences(same, inside) == [words]


def test_padding_before_or_inside_a_layer_is_equal():
    assert kind_of_padding(conv((2, 2)), conv((0, 0), x=padded("zeros"))) == ""
    assert settings_differences(conv((2, 2)), conv((0, 0), x=padded("zeros"))) == []


def test_another_amount_of_padding_stays_what_it_is():
    port, reference = conv((1, 2), output=X, pad_mode="same"), conv((2, 2), output=-X)
    assert kind_of_padding(port, reference) is None
    assert settings_differences(port, reference) == ["pad_mode same pads 1/2, the reference 2/2"]
