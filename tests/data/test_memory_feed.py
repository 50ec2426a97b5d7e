import dataclasses

import numpy as np
import pytest

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.augment import random_affine
from resnet_fn.data.dataset import Split, check_labels
from resnet_fn.data.eval_batches import eval_batches
from resnet_fn.data.memory_feed import MemoryFeed
from resnet_fn.data.normalise import prepare
from resnet_fn.data.order import epoch_order
from resnet_fn.data.sources.digits import load_digits
from resnet_fn.runtime.workers import Workers

DIGITS = load_digits()
RECIPE = Recipe(batch_size=60, max_shift=2, max_rotation=20, max_zoom=0.2)


def test_digits_are_the_documented_ones():
    assert DIGITS.train.images.shape == (1437, 8, 8, 1)
    assert len(DIGITS.test) == 360
    pixels = DIGITS.train.images / 16
    assert DIGITS.input.mean[0] == pytest.approx(pixels.mean(), abs=1e-6)
    assert DIGITS.input.std[0] == pytest.approx(pixels.std(), abs=1e-6)
    assert set(DIGITS.train.labels) == set(DIGITS.test.labels) == set(range(10))


def test_order_is_a_permutation_from_seed_and_epoch_alone():
    first = epoch_order(7, 3, 1437)
    assert sorted(first) == list(range(1437))
    assert (first == epoch_order(7, 3, 1437)).all()
    assert (first != epoch_order(7, 4, 1437)).any()
    assert (first != epoch_order(8, 3, 1437)).any()


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 5])
def test_workers_share_an_update_without_changing_it(workers):
    """The shares, laid end to end in order of rank, are the very bytes of the one-worker batch."""
    whole = MemoryFeed(DIGITS, RECIPE)
    shares = [MemoryFeed(DIGITS, RECIPE, Workers(rank, workers)) for rank in range(workers)]
    for update in (0, 22, 23, 57):
        images, labels = whole.batch(update)
        parts = [share.batch(update) for share in shares]
        assert np.concatenate([part[0] for part in parts]).tobytes() == images.tobytes()
        assert np.concatenate([part[1] for part in parts]).tobytes() == labels.tobytes()


def test_any_update_is_found_without_those_before():
    started_here = MemoryFeed(DIGITS, RECIPE).batch(40)[0].tobytes()
    walked = MemoryFeed(DIGITS, RECIPE)
    for update in range(40):
        walked.batch(update)
    assert walked.batch(40)[0].tobytes() == started_here


def test_an_epoch_visits_no_sample_twice():
    data = MemoryFeed(DIGITS, RECIPE)
    assert data.updates_per_epoch == 1437 // 60
    seen = np.concatenate([data.indices(update) for update in range(data.updates_per_epoch)])
    assert len(set(seen)) == len(seen) == 23 * 60


def test_a_batch_larger_than_the_set_is_refused():
    with pytest.raises(ValueError, match="batch_size: 2000 is larger than the training set of 1437; give at most 1437"):
        MemoryFeed(DIGITS, Recipe(batch_size=2000))


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
@pytest.mark.parametrize("batch_size", [1, 13, 360, 1000])
def test_evaluation_meets_every_sample_once_in_equal_batches(workers, batch_size):
    seen, lengths = [], set()
    for rank in range(workers):
        batches = list(eval_batches(DIGITS.test, DIGITS.input, batch_size, Workers(rank, workers)))
        lengths.add(len(batches))
        for images, labels, indices in batches:
            assert images.shape == (batch_size, 1, 8, 8)
            real = indices >= 0
            assert (labels[real] == DIGITS.test.labels[indices[real]]).all()
            seen += indices[real].tolist()
    assert sorted(seen) == list(range(360))
    assert len(lengths) == 1  # nobody waits for ever in the exchange that follows


@pytest.mark.parametrize(("workers", "batch_size"), [(1, 64), (1, 192), (2, 64), (3, 128), (8, 64)])
def test_a_sample_has_its_own_place_among_64_however_it_is_evaluated(workers, batch_size):
    seen, lengths = [], set()
    for rank in range(workers):
        batches = list(eval_batches(DIGITS.test, DIGITS.input, batch_size, Workers(rank, workers), 64))
        lengths.add(len(batches))
        for _, _, indices in batches:
            places = np.flatnonzero(indices >= 0)
            assert (places % 64 == indices[places] % 64).all()
            seen += indices[places].tolist()
    assert sorted(seen) == list(range(360))
    assert len(lengths) == 1


def test_prepare_normalises_and_resizes():
    spec = dataclasses.replace(DIGITS.input, mean=(0.5,), std=(0.25,))
    flat = prepare(np.full((1, 8, 8, 1), 16, np.uint8), 16, spec)
    np.testing.assert_allclose(flat, 2.0, rtol=1e-6)
    ramp = np.arange(4, dtype=np.uint8).reshape(1, 1, 4, 1).repeat(4, axis=1)
    doubled = prepare(ramp, 8, dataclasses.replace(spec, full_scale=1.0, mean=(0.0,), std=(1.0,)))[0, 0, 3]
    # half-pixel centres: target i lies at (i + 1/2) / 2 − 1/2, clamped at the border
    np.testing.assert_allclose(doubled, [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3], atol=1e-6)


def test_affine_shifts_whole_pixels_and_fills_with_black():
    image = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    fill = np.float32([-9])
    down = random_affine(image, np.array([[-1.0, 0, 0, 0]]), 1, 0, 0, fill)[0, 0]
    np.testing.assert_array_equal(down[0], [-9] * 4)
    np.testing.assert_array_equal(down[1:], image[0, 0, :3])
    left = random_affine(image, np.array([[0, 0.99, 0, 0]]), 1, 0, 0, fill)[0, 0]
    np.testing.assert_array_equal(left[:, :3], image[0, 0, :, 1:])


def test_affine_rotates_by_a_quarter_and_leaves_the_rest_alone():
    image = np.random.default_rng(0).normal(size=(1, 2, 5, 5)).astype(np.float32)
    turned = random_affine(image, np.array([[0, 0, 1.0, 0]]), 0, 90, 0, np.float32([0, 0]))
    assert any(np.allclose(turned, np.rot90(image, k, axes=(2, 3)), atol=1e-5) for k in (1, 3))
    same = random_affine(image, np.zeros((1, 4)), 2, 20, 0.2, np.float32([0, 0]))
    np.testing.assert_allclose(same, image, atol=1e-6)


@pytest.mark.parametrize("label", [-1, 10])
def test_labels_out_of_range_are_refused(label):
    split = Split(np.zeros((3, 8, 8, 1), np.uint8), np.array([0, label, 9], np.int32))
    with pytest.raises(ValueError, match=f"training set: sample 1 has label {label}, outside 0..9"):
        check_labels(split, 10, "training set")
