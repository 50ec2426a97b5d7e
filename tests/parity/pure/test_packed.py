"""A port's padded sequences are packed as the reference's are."""

import numpy as np
import pytest

from resnet_fn.parity.trace.packed import packed_outputs, padded_names
from resnet_fn.parity.trace.tree import paired_outputs

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


def test_outputs_that_are_not_padded_stay():
    other = {"logits 0": np.ones((3, 4, 5))}
    assert packed_outputs(other, PACKED) == other
    assert packed_outputs(PACKED, PACKED) == PACKED


DATA = PACKED["logits 0 data"]
OTHER = PADDED[::-1]  # another output of the same shape
OF_DICT = {"logits enc": OTHER} | {
    name.replace("logits 0", "logits dec"): array
    for name, array in PACKED.items()
    if name != "logits 1"
}


@pytest.mark.parametrize(
    ("enc", "dec"),
    [("logits enc", "logits out"), ("logits 0", "logits 1"), ("logits enc", "logits dec")],
)
def test_another_output_of_equal_shape_stays_padded(enc, dec):
    port = {enc: OTHER, dec: PADDED}
    assert padded_names(port, OF_DICT) == {"logits dec data": dec}
    found = packed_outputs(port, OF_DICT)
    assert found.keys() == {enc, *OF_DICT} - ({"logits enc"} - {enc})
    np.testing.assert_array_equal(found[enc], OTHER)
    np.testing.assert_array_equal(found["logits dec data"], DATA)


def test_a_tuple_is_packed_in_order():
    """Whatever fits best: a port that returns two outputs in another order is wrong."""
    found = packed_outputs({"logits 0": PADDED, "logits 1": OTHER}, OF_DICT)
    np.testing.assert_array_equal(found["logits 0"], PADDED)
    assert not np.array_equal(found["logits dec data"], DATA)


def test_a_name_of_another_shape_is_not_packed():
    port = {"logits 0": np.ones(3), "logits 1": PADDED}
    assert packed_outputs(port, PACKED) == port


def test_a_text_takes_no_output():
    reference = {"logits kind (text)": np.arange(4), "logits x": np.ones(3)}
    assert paired_outputs({"logits 0": np.ones(3)}, reference) == {"logits x": "logits 0"}
    alike = {"logits kind (text)": np.arange(3), "scale (number)": np.ones(()), "x": np.ones(3)}
    assert paired_outputs({"logits 0": np.ones(3)}, alike) == {"x": "logits 0"}
    of_object = {"logits scale (number)": np.ones(()), "logits loss": np.ones(())}
    assert paired_outputs(of_object, {"logits 0": np.ones(())}) == {"logits 0": "logits loss"}
