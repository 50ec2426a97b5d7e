"""Batches in memory do not depend on workers and micro-batches."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.feed import MemoryFeed, check_feed, make_feed
from resnet_fn.data.images import like_float_feed
from resnet_fn.data.sources.bundled import load_digits, make_synthetic
from resnet_fn.data.sources.load import load_dataset
from resnet_fn.data.sources.scan import check_files
from resnet_fn.runtime.workers import Workers

PICTURES = make_synthetic(samples=64, classes=5, image_size=16)
CHANGES = {
    "crop_padding": 2,
    "flip": True,
    "policy": "trivialaugment",
    "color_jitter": 0.3,
    "erasing": 0.4,
}
AUGMENTED = Recipe(
    dataset="synthetic", image_size=16, batch_size=24, epochs=4, mixup=0.2, cutmix=1.0, **CHANGES
)


def test_an_epoch_visits_no_sample_twice():
    data = MemoryFeed(load_digits(), Recipe(batch_size=60))
    assert data.updates_per_epoch == 1437 // 60
    seen = np.concatenate([data.indices(update) for update in range(data.updates_per_epoch)])
    assert len(set(seen)) == len(seen) == 23 * 60


def test_two_threads_get_the_same_batches():
    """Across the end of an epoch, where the order is drawn anew."""
    recipe = replace(AUGMENTED, repeats=2)
    expected = [MemoryFeed(PICTURES, recipe).batch(update)[0].tobytes() for update in range(6)]
    feed = MemoryFeed(PICTURES, recipe)
    with ThreadPoolExecutor(1) as pool:
        for update in range(6):
            future = pool.submit(feed.batch, update)
            earlier = max(update - 1, 0)
            asked = feed.indices(earlier)
            assert future.result()[0].tobytes() == expected[update]
            assert asked.tolist() == MemoryFeed(PICTURES, recipe).indices(earlier).tolist()


@pytest.mark.parametrize("repeats", [1, 3])
def test_workers_share_a_mixed_update_without_changing_it(repeats):
    recipe = replace(AUGMENTED, repeats=repeats)
    whole = MemoryFeed(PICTURES, recipe)
    shares = [MemoryFeed(PICTURES, recipe, Workers(rank, 4)) for rank in range(4)]
    for update in (0, 1, 5):
        images, labels = whole.batch(update)
        parts = [share.batch(update) for share in shares]
        assert np.concatenate([part[0] for part in parts]).tobytes() == images.tobytes()
        assert np.concatenate([part[1] for part in parts]).tobytes() == labels.tobytes()


def test_augmentation_depends_on_seed_epoch_and_sample_alone():
    recipe = replace(AUGMENTED, mixup=0.0, cutmix=0.0)

    def by_sample(recipe, epoch):
        data = MemoryFeed(PICTURES, recipe)
        first = epoch * data.updates_per_epoch
        updates = range(first, first + data.updates_per_epoch)
        return {
            int(index): image.tobytes()
            for update in updates
            for index, image in zip(data.indices(update), data.batch(update)[0], strict=True)
        }

    large_batches = by_sample(recipe, 1)
    small = replace(recipe, batch_size=8)
    small_batches = by_sample(small, 1)
    assert all(small_batches[index] == pixels for index, pixels in large_batches.items())
    assert sum(small_batches[i] == pixels for i, pixels in by_sample(small, 2).items()) < 8


def test_labels_stay_probabilities_when_mixing_ends():
    recipe = replace(AUGMENTED, mix_off_epochs=1)
    data = MemoryFeed(PICTURES, recipe)
    last = 3 * data.updates_per_epoch
    assert (data.batch(last - 1)[1].max(1) < 1).any()
    labels = data.batch(last)[1]
    assert labels.dtype == np.float32
    assert set(labels.reshape(-1).tolist()) == {0.0, 1.0}


def test_the_byte_feed_normalised_equals_the_float_feed(folder):
    recipe = Recipe(dataset="imagefolder", image_size=24, batch_size=4, flip=True)
    photographs = check_files(load_dataset(recipe, str(folder)))
    plain = make_feed(photographs, recipe)
    as_bytes = make_feed(photographs, recipe, dtype="uint8")
    for update in range(7):
        images, labels = as_bytes.batch(update)
        assert images.dtype == np.uint8
        expected, same = plain.batch(update)
        assert like_float_feed(images, photographs.input).tobytes() == expected.tobytes()
        assert labels.tolist() == same.tolist()


@pytest.mark.parametrize(
    ("fields", "needs"),
    [
        ({"mixup": 0.2}, "mixup, cutmix and erasing"),
        ({"erasing": 0.2}, "mixup, cutmix and erasing"),
        ({"dataset": "digits", "image_size": 8}, "sets in memory"),
    ],
)
def test_uint8_is_rejected_where_normalising_must_come_first(fields, needs, raises_line):
    with raises_line("feed: 'uint8'", needs, "give float32"):
        check_feed(
            Recipe(**{"dataset": "imagefolder", "image_size": 24, "batch_size": 4, **fields}),
            "uint8",
        )
