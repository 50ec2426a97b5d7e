"""Which inputs show the lengths of samples, and the samples without padding: NumPy alone."""

import numpy as np
import pytest

from resnet_fn.parity.ways.padding import lengths_of, padded_and_alone
from resnet_fn.parity.ways.samples import joined
from resnet_fn.parity.ways.way import NotApplicableError

MASK = np.arange(6) < np.array([6, 4])[:, None]
IDS = np.where(MASK, np.arange(1, 7), 0)


def test_a_mask_shows_lengths_whatever_its_sign():
    for mask in (MASK, ~MASK, MASK.astype(np.int64), np.where(MASK, 0, -1e4).astype(np.float32)):
        lengths = lengths_of({"ids": IDS, "attention_mask": mask}, {})
        assert [*lengths.of_samples] == [6, 4]


def test_a_mask_of_integers_needs_no_full_sample():
    # as of a tokenizer with padding="max_length"
    mask = np.arange(8) < np.array([6, 4])[:, None]
    inputs = {"ids": np.arange(16).reshape(2, 8), "attention_mask": mask.astype(np.int64)}
    lengths = lengths_of(inputs, {})
    assert ([*lengths.of_samples], lengths.longest) == ([6, 4], 8)
    padded, (first, second) = padded_and_alone(inputs, lengths)
    assert padded is inputs
    assert (first["ids"].shape, second["ids"].shape) == ((1, 6), (1, 4))


@pytest.mark.parametrize(
    "inputs",
    [
        np.ones((2, 6), np.float32),
        {"ids": IDS, "token_type_ids": np.zeros((2, 6), np.int64)},
        {"ids": IDS[:, ::-1], "mask": MASK[:, ::-1]},  # padded on the left
    ],
)
def test_lengths_without_such_a_mask_are_not_guessed(inputs):
    assert lengths_of(inputs, {}) is None


def test_samples_lose_their_padding_in_all_inputs():
    inputs = {"ids": IDS, "mask": MASK, "x": np.ones((2, 6, 3), np.float32)}
    padded, (first, second) = padded_and_alone(inputs, lengths_of(inputs, {}))
    assert padded is inputs
    assert first["ids"].shape == (1, 6)
    assert second["ids"].tolist() == [[1, 2, 3, 4]]
    assert second["mask"].all()
    assert second["x"].shape == (1, 4, 3)


def test_full_samples_are_cut_and_hidden():
    inputs = {"ids": IDS + 1, "mask": np.ones((2, 6), bool), "lengths": np.array([6, 6])}
    padded, alone = padded_and_alone(inputs, lengths_of(inputs, {}))
    assert padded["lengths"].tolist() == [6, 3]
    assert padded["mask"].sum(1).tolist() == [6, 3]
    assert padded["ids"][1, 3:].tolist() == [0, 0, 0]
    assert alone[1]["ids"].tolist() == padded["ids"][1:, :3].tolist()


def test_a_named_axis_ends_where_zeros_begin():
    lengths = lengths_of(IDS, {"inputs": 1})
    assert [*lengths.of_samples] == [6, 4]


def test_full_integers_without_a_mask_are_not_cut():
    with pytest.raises(NotApplicableError, match="no sample of inputs ends with zeros, and no"):
        lengths_of(IDS + 1, {"inputs": 1})
    numbers = np.ones((2, 6, 3), np.float32)
    assert [*lengths_of(numbers, {"inputs": 1}).of_samples] == [6, 6]


def test_parts_lie_where_their_samples_are():
    whole = np.arange(12.0).reshape(2, 3, 2)
    alone = whole[:1], whole[1:]
    at_once, together = joined(whole, [alone[0], alone[1][:, :2] + 1])
    np.testing.assert_array_equal(at_once[1, 2], 0)  # only padding
    np.testing.assert_array_equal(together[1, :2], whole[1, :2] + 1)
    # samples along the second axis
    at_once, together = joined(whole.swapaxes(0, 1), [part.swapaxes(0, 1) for part in alone])
    np.testing.assert_array_equal(at_once, together)
    assert joined(np.float32(3.0), [np.float32(3.0)] * 2) is None
    assert joined(whole, [whole, whole]) is None  # a table, not one row for each sample
    pairs = np.ones((2, 2))  # of samples with each other: alone, each has one with itself
    assert joined(pairs, [pairs[:1, :1], pairs[1:, 1:]]) is None


def test_masks_of_several_lengths_are_not_guessed():
    """A source and a target, padded to one length: --length-axis names which is meant."""
    inputs = {"src": IDS, "src_mask": MASK, "tgt": IDS, "tgt_mask": MASK[::-1]}
    with pytest.raises(NotApplicableError, match="name the axis of one: --length-axis NAME=AXIS"):
        lengths_of(inputs, {})
    named = lengths_of(inputs, {"inputs src": 1})
    assert [*named.of_samples] == [6, 4]
    assert [[*axes] for axes in named.axes.values()] == [[1], [1], [], []]
    assert [*lengths_of({"src": IDS, "src_mask": MASK, "mask": MASK}, {}).of_samples] == [6, 4]
