from pathlib import Path

import pytest

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.feed import make_feed
from resnet_fn.data.sources.load import load_dataset
from resnet_fn.data.sources.scan import check_files
from resnet_fn.run.prefetch import Prefetcher

RECIPE = Recipe(dataset="imagefolder", image_size=24, batch_size=4, flip=True, epochs=3)  # 5 updates an epoch


@pytest.fixture
def photographs(folder):
    dataset = check_files(load_dataset(RECIPE, str(folder)), "error")
    return dataset


def test_batches_are_the_feeds_bit_for_bit_over_epochs_and_from_anywhere(photographs):
    feed = make_feed(photographs, RECIPE)
    expected = [tuple(part.tobytes() for part in feed.batch(update)) for update in range(15)]
    for start in (0, 4, 7):
        prefetcher = Prefetcher(make_feed(photographs, RECIPE), 15)
        for update in range(start, 15):
            batch, tensors, seconds = prefetcher.get(update)
            prefetcher.prepare(update + 1)
            assert tuple(part.tobytes() for part in batch) == expected[update]
            assert tuple(tensor.asnumpy().tobytes() for tensor in tensors) == expected[update]
            assert seconds > 0


def test_taking_what_was_not_prepared_prepares_it(photographs):
    prefetcher = Prefetcher(make_feed(photographs, RECIPE), 15)
    prefetcher.prepare(3)
    fresh = make_feed(photographs, RECIPE)
    assert prefetcher.get(7).batch[0].tobytes() == fresh.batch(7)[0].tobytes()


def test_an_error_waits_for_the_update_that_it_belongs_to(photographs):
    feed = make_feed(photographs, RECIPE)
    prefetcher = Prefetcher(feed, 15)
    for update in range(4):
        prefetcher.get(update)
        prefetcher.prepare(update + 1)
    for index in feed.indices(5):
        Path(photographs.train.path(index)).unlink()
    prefetcher.get(4)
    prefetcher.prepare(5)  # while the epoch's last update is computed: its evaluation and checkpoint still come
    with pytest.raises(ValueError, match=r"ü.JPEG: cannot be read \(No such file or directory\)"):
        prefetcher.get(5)


def test_nothing_is_prepared_beyond_the_last_update(photographs):
    feed = make_feed(photographs, RECIPE)
    prefetcher = Prefetcher(feed, 5)
    prefetcher.get(4)
    prefetcher.prepare(5)
    assert feed.indices(4).shape == (4,)
    assert feed._pool is None  # nothing was begun for an epoch that never comes
