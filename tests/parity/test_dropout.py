"""What drops by a mask is measured, and both sides' masks are one."""

from collections.abc import Callable

import numpy as np
import pytest

from resnet_fn.parity.dropout import drops_of
from resnet_fn.parity.layers.layer import Layer
from resnet_fn.parity.trace import Drop

IMAGE = np.random.default_rng(0).normal(size=(4, 3, 5, 6))


def dropping(share: float, axes: tuple[int, ...], scale: float) -> Callable[[str, np.ndarray], np.ndarray]:
    """A layer in training mode."""
    rng = np.random.default_rng(1)

    def call(_: str, x: np.ndarray) -> np.ndarray:
        return x * scale * (rng.random([size if axis in axes else 1 for axis, size in enumerate(x.shape)]) >= share)

    return call


def layer(name: str, x: np.ndarray, call: int = 0) -> Layer:
    return Layer(name, call, "own block", "Block", {}, x, x, (), True)


def test_a_share_that_is_not_what_a_layer_says_is_measured():
    (drop,) = drops_of([("a", "p", 0.3)], [layer("a", IMAGE)], dropping(0.7, (0, 1, 2, 3), 2.0))
    assert drop.share == pytest.approx(0.7, abs=0.02)


@pytest.mark.parametrize(
    "call",
    [
        lambda name, x: x * (np.random.default_rng(0).random(x.shape) >= 0.3) - 0.5,  # as AlphaDropout
        lambda name, x: x,
        lambda name, x: [][1],
    ],
)
def test_what_is_no_mask_has_its_share_alone(call):
    assert drops_of([("a", "p", 0.3)], [layer("a", IMAGE)], call) == [Drop("a", 0.3, False)]
