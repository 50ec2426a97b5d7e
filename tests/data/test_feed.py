"""Batches in memory do not depend on workers and micro-batches."""

from concurrent.futures import ThreadPoolExecutor

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
    assert data.updates_per_epoch == 23  # of 1,437 samples
    assert len({*np.concatenate(list(map(data.indices, range(23))))}) == 23 * 60


def test_two_threads_get_the_same_batches():
    """Across the end of an epoch, where the order is drawn anew."""
    feed, expected = (MemoryFeed(PICTURES, AUGMENTED.changed(repeats=2)) for _ in range(2))
    with ThreadPoolExecutor(1) as pool:
        for update in range(1, 6):
            future = pool.submit(feed.batch, update)
            asked = feed.indices(update - 1)
            assert future.result()[0].tobytes() == expected.batch(update)[0].tobytes()
            assert asked.tolist() == expected.indices(update - 1).tolist()


@pytest.mark.parametrize("repeats", [1, 3])
def test_workers_share_a_mixed_update_without_changing_it(repeats):
    recipe = AUGMENTED.changed(repeats=repeats)
    whole = MemoryFeed(PICTURES, recipe)
    shares = [MemoryFeed(PICTURES, recipe, Workers(rank, 4)) for rank in range(4)]
    for update in (0, 1, 5):
        images, labels = whole.batch(update)
        parts = zip(*(share.batch(update) for share in shares), strict=True)
        for part, expected in zip(parts, (images, labels), strict=True):
            assert np.concatenate(part).tobytes() == expected.tobytes()


def test_augmentation_depends_on_seed_epoch_and_sample_alone():
    recipe = AUGMENTED.changed(mixup=0.0, cutmix=0.0)

    def by_sample(recipe, epoch):
        data = MemoryFeed(PICTURES, recipe)
        count = data.updates_per_epoch
        return {
            (int(index), image.tobytes())
            for update in range(epoch * count, (epoch + 1) * count)
            for index, image in zip(data.indices(update), data.batch(update)[0], strict=True)
        }

    small = recipe.changed(batch_size=8)
    in_small_batches = by_sample(small, 1)
    assert by_sample(recipe, 1) < in_small_batches
    assert len(in_small_batches & by_sample(small, 2)) < 8


def test_labels_stay_probabilities_when_mixing_ends():
    recipe = AUGMENTED.changed(mix_off_epochs=1)
    data = MemoryFeed(PICTURES, recipe)
    last = 3 * data.updates_per_epoch
    assert (data.batch(last - 1)[1].max(1) < 1).any()
    labels = data.batch(last)[1]
    assert labels.dtype == np.float32
    assert np.unique(labels).tolist() == [0, 1]


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
        ({"dataset": "digits"}, "sets in memory"),
    ],
)
def test_uint8_is_rejected_where_normalising_must_come_first(fields, needs, raises_line):
    with raises_line("feed: 'uint8'", needs, "give float32"):
        check_feed(Recipe(**{"dataset": "imagefolder", **fields}), "uint8")
