"""A port's padded sequences are packed as the reference's are."""

import numpy as np
import pytest

from resnet_fn.parity.trace.packed import packed_outputs

PADDED = np.arange(24.0).reshape(3, 4, 2)  # [samples, steps, features]; lengths 2, 3 and 1
PACKED = {
    "logits 0 data": np.stack(
        [PADDED[n, t] for n, t in ((1, 0), (0, 0), (2, 0), (1, 1), (0, 1), (1, 2))]
    ),
    "logits 0 batch_sizes": np.array([3, 2, 1]),
    "logits 0 sorted_indices": np.array([1, 0, 2]),
    "logits 0 unsorted_indices": np.array([1, 0, 2]),
    "logits 1": np.ones(3),
}


@pytest.mark.parametrize("padded", [PADDED, PADDED.swapaxes(0, 1), PADDED[:, :3]])
def test_padded_sequences_are_packed(padded):
    found = packed_outputs({"logits 0": padded, "logits 1": np.ones(3)}, PACKED)
    assert found.keys() == PACKED.keys()
    for name, array in PACKED.items():
        np.testing.assert_array_equal(found[name], array)


def test_other_outputs_stay():
    other = {"logits 0": np.ones((3, 4, 5))}
    assert packed_outputs(other, PACKED) == other
    assert packed_outputs(PACKED, PACKED) == PACKED
