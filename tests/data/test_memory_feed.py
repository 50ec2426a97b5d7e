"""Updates from memory: the same bytes for any number of workers, found directly, each sample once an epoch."""

import dataclasses

import numpy as np
import pytest

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.feed import MemoryFeed
from resnet_fn.data.sources.bundled import load_digits, make_synthetic
from resnet_fn.runtime.workers import Workers

DIGITS = load_digits()
RECIPE = Recipe(batch_size=60, max_shift=2, max_rotation=20, max_zoom=0.2)
PICTURES = make_synthetic(samples=64, classes=5, image_size=16)

AUGMENTED = Recipe(
    dataset="synthetic",
    image_size=16,
    batch_size=24,
    epochs=4,
    crop_padding=2,
    flip=True,
    policy="trivialaugment",
    color_jitter=0.3,
    erasing=0.4,
    mixup=0.2,
    cutmix=1.0,
)


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


@pytest.mark.parametrize("fields", [{}, {"repeats": 3}, {"policy": "randaugment"}, {"policy": "autoaugment"}])
@pytest.mark.parametrize("workers", [2, 3, 4])
def test_workers_share_an_augmented_and_mixed_update_without_changing_it(workers, fields):
    recipe = dataclasses.replace(AUGMENTED, **fields)
    whole = MemoryFeed(PICTURES, recipe)
    shares = [MemoryFeed(PICTURES, recipe, Workers(rank, workers)) for rank in range(workers)]
    for update in (0, 1, 5):
        images, labels = whole.batch(update)
        parts = [share.batch(update) for share in shares]
        assert np.concatenate([part[0] for part in parts]).tobytes() == images.tobytes()
        assert np.concatenate([part[1] for part in parts]).tobytes() == labels.tobytes()


def test_a_samples_augmentation_hangs_on_seed_epoch_and_sample_alone():
    recipe = dataclasses.replace(AUGMENTED, mixup=0.0, cutmix=0.0)
    small = dataclasses.replace(recipe, batch_size=8)

    def by_sample(recipe, epoch):
        data = MemoryFeed(PICTURES, recipe)
        first = epoch * data.updates_per_epoch
        updates = range(first, first + data.updates_per_epoch)
        return {
            int(index): image.tobytes()
            for update in updates
            for index, image in zip(data.indices(update), data.batch(update)[0], strict=True)
        }

    large_batches, small_batches = by_sample(recipe, 1), by_sample(small, 1)
    assert all(small_batches[index] == pixels for index, pixels in large_batches.items())
    assert sum(small_batches[i] == pixels for i, pixels in by_sample(small, 2).items()) < 8


def test_labels_stay_probabilities_when_mixing_ends():
    recipe = dataclasses.replace(AUGMENTED, mix_off_epochs=1)
    data = MemoryFeed(PICTURES, recipe)
    last = 3 * data.updates_per_epoch
    assert (data.batch(last - 1)[1].max(1) < 1).any()
    labels = data.batch(last)[1]
    assert labels.dtype == np.float32
    assert set(labels.reshape(-1).tolist()) == {0.0, 1.0}
