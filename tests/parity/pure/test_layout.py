"""Arrays of one framework in the other's layout."""

import numpy as np
import pytest

from resnet_fn.parity.trace.layout import layout

PLANES = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype(np.float32)
TOKENS = PLANES.transpose(0, 2, 3, 1).reshape(2, 20, 3)


@pytest.mark.parametrize("port", [PLANES.reshape(2, 3, 20), PLANES.transpose(0, 2, 3, 1), TOKENS])
def test_planes_and_tokens_hold_the_same_numbers(port):
    assert np.array_equal(layout(port, PLANES)(PLANES), port)
    assert np.array_equal(layout(PLANES, port)(port), PLANES)


def test_heads_may_be_merged_behind_their_places():
    merged = PLANES.transpose(0, 2, 1, 3).reshape(2, 4, 15)
    assert np.array_equal(layout(merged, PLANES)(PLANES), merged)
