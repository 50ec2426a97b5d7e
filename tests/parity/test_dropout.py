"""What drops by a mask is measured, and both sides' masks are one."""

from collections.abc import Callable

import numpy as np
import pytest

from resnet_fn.parity.layers.layer import Layer
from resnet_fn.parity.randomness import drops_of, shared_masks
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


@pytest.mark.parametrize("axes", [(0, 1, 2, 3), (0, 1), (0, 3), (0,)])
@pytest.mark.parametrize("scale", [1.0, 2.5])
def test_what_a_layer_drops_is_measured(axes, scale):
    (drop,) = drops_of([("a", "p", 0.3)], [layer("a", IMAGE)], dropping(0.3, axes, scale))
    wanted = tuple(size if axis in axes else 1 for axis, size in enumerate(IMAGE.shape))
    assert drop == Drop("a", 0.3, True, scale, wanted)


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


def test_masks_are_the_reference_s_in_other_axes_and_each_call_has_its_own():
    last = np.moveaxis(IMAGE, 1, 3)
    theirs = [layer("a", IMAGE), layer("b", IMAGE + 1), layer("b", IMAGE + 2, 1)]
    ours = [layer("z", last + 2), layer("y", last + 1), layer("x", last)]
    of_theirs = drops_of([("a", "p", 0.3), ("b", "p", 0.3)], theirs, dropping(0.3, (0, 1), 1.25))
    of_ours = drops_of([(name, "p", 0.3) for name in "xyz"], ours, dropping(0.3, (0, 3), 1.25))
    own, shared = shared_masks((of_theirs, theirs)), shared_masks((of_ours, ours), (of_theirs, theirs), {})
    assert (len(own["a"]), len(own["b"])) == (1, 2)
    for mask, name in zip([*own["a"], *own["b"]], "xyz", strict=True):
        np.testing.assert_array_equal(np.moveaxis(mask, 1, 3), shared[name][0])
        assert set(np.unique(mask)) == {0, 1.25}
    assert not np.array_equal(*own["b"])
    assert shared_masks((of_ours[:2], ours), (of_theirs, theirs), {}) == {}
