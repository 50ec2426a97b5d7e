"""Batches of image files do not depend on workers, threads and buffers."""

import os
import threading
import time
import tracemalloc
from dataclasses import fields, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.feed import make_feed
from resnet_fn.data.mix import erase
from resnet_fn.data.sources.files import FileSplit
from resnet_fn.data.sources.load import load_dataset
from resnet_fn.data.sources.scan import check_files
from resnet_fn.runtime.workers import Workers

RECIPE = Recipe(
    dataset="imagefolder", image_size=24, batch_size=4, flip=True, erasing=0.5, epochs=3
)


@pytest.fixture
def photographs(folder):
    return check_files(load_dataset(RECIPE, str(folder)))


def bytes_of(feed, updates):
    return [feed.batch(update)[0].tobytes() for update in updates]


def feed_on(dataset, train, **changes):
    """The feed of RECIPE with these changes, on another training split."""
    return make_feed(replace(dataset, train=train), RECIPE.changed(**changes))


def test_a_held_batch_is_never_overwritten(photographs):
    feed = make_feed(photographs, RECIPE.changed(erasing=0.0))
    held = [feed.batch(update)[0] for update in range(10)]
    copies = [images.tobytes() for images in held]
    bytes_of(feed, range(10))
    assert [images.tobytes() for images in held] == copies
    assert len(set(copies)) == 10


def on_threads(dataset, threads):
    return replace(dataset, train=replace(dataset.train, threads=threads))


@pytest.mark.parametrize(
    "fields",
    [
        {"policy": "randaugment", "policy_noise": 1.5, "repeats": 2},
        {"policy": "autoaugment", "cutmix": 1.0},
        {"color_jitter": 0.4, "sampling": "balanced"},
    ],
)
def test_threads_workers_and_resume_do_not_change_pixels(photographs, fields):
    recipe = RECIPE.changed(batch_size=8, **fields)
    feed = make_feed(on_threads(photographs, 1), recipe)
    assert feed.updates_per_epoch == 2
    walk = [feed.batch(update)[0] for update in range(4)]
    plain = make_feed(photographs, RECIPE.changed(batch_size=8))
    assert walk[3].tobytes() != plain.batch(3)[0].tobytes()
    assert len({images.tobytes() for images in walk}) == 4
    for threads, updates in ((2, range(4)), (3, [3, 1, 3]), (3, range(2, 4))):
        resumed = bytes_of(make_feed(on_threads(photographs, threads), recipe), updates)
        assert resumed == [walk[update].tobytes() for update in updates]
    shares = [make_feed(on_threads(photographs, 2), recipe, Workers(rank, 4)) for rank in range(4)]
    for update in (3, 0):
        parts = [share.batch(update)[0] for share in shares]
        # CutMix draws one box for an update and mixes neighbours, so the shares are the batch
        # there too.
        assert np.concatenate(parts).tobytes() == walk[update].tobytes()


def test_repeated_samples_look_different_each_time(photographs):
    few = photographs.train.keep(np.isin(np.arange(21), [0, 1, 2, 3, 4, 5, 6, 7, 14]))  # 7, 1, 1
    feed = feed_on(photographs, few, batch_size=9, sampling="balanced", erasing=0.0)
    images = np.concatenate([feed.batch(update)[0] for update in range(3)])
    seen = np.concatenate([feed.indices(update) for update in range(3)])
    assert np.unique(seen, return_counts=True)[1].max() >= 9
    assert len({image.tobytes() for image in images}) == 27


def test_a_resume_reads_no_file_seen_before(photographs):
    feed = make_feed(photographs, RECIPE)
    walk = bytes_of(feed, range(5))
    for index in np.concatenate([feed.indices(update) for update in range(3)]):
        Path(photographs.train.path(index)).unlink()
    assert bytes_of(make_feed(photographs, RECIPE), [3, 4]) == walk[3:]


def test_erasing_uses_each_samples_numbers_of_the_epoch(photographs):
    """The numbers of a sample are found without those before: the bits of a generator that walked
    through them.
    """
    recipe = RECIPE.changed(batch_size=6, repeats=3, erasing=1.0, flip=False, crop_scale=1.0)
    feed = make_feed(photographs, recipe)
    plain = make_feed(photographs, recipe.changed(erasing=0.0))
    draws = np.random.default_rng([recipe.seed, 1, 4]).random((3, 21, 5))
    for update in (3, 5):
        chosen = draws[[0, 0, 1, 1, 2, 2], feed.indices(update)]
        expected = erase(plain.batch(update)[0], chosen, 1.0)
        assert feed.batch(update)[0].tobytes() == expected.tobytes()


def test_repeated_augmentation_spreads_the_copies(photographs):
    feed = make_feed(photographs, RECIPE.changed(batch_size=6, repeats=3, mixup=0.2))
    for update in range(3):
        pairs = feed.indices(update).reshape(3, 2)
        np.testing.assert_array_equal(np.sort(pairs), [np.unique(pairs)] * 3)  # both in each pair
        images, labels = feed.batch(update)
        assert labels.shape == (6, 3)
        assert len({image.tobytes() for image in images}) == 6


def as_kind(split: FileSplit, kind: type[FileSplit], **changes) -> FileSplit:
    return kind(**{field.name: getattr(split, field.name) for field in fields(split)} | changes)


class BreakingSplit(FileSplit):
    """Fails once, at the tenth sample."""

    def stream(self, order):
        for place, sample in enumerate(super().stream(order)):
            if place == 10 and FAILURES:
                raise FAILURES.pop()
            yield sample


FAILURES: list[BaseException] = []


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), MemoryError()])
def test_after_a_failure_the_right_images_come(photographs, failure):
    feed = feed_on(photographs, as_kind(photographs.train, BreakingSplit))
    FAILURES.append(failure)
    with pytest.raises(type(failure)):
        bytes_of(feed, range(5))
    assert bytes_of(feed, range(5)) == bytes_of(make_feed(photographs, RECIPE), range(5))


def test_a_stream_that_ends_early_is_an_error(photographs):
    class ShortSplit(FileSplit):
        def stream(self, order):
            return super().stream(order[:6])

    feed = feed_on(photographs, as_kind(photographs.train, ShortSplit))
    feed.batch(0)
    expected = feed.indices(1)[2]
    with pytest.raises(RuntimeError, match=f"returned sample None instead of {expected}$"):
        feed.batch(1)


def tiled(split: FileSplit, kind: type[FileSplit]) -> FileSplit:
    """Each sample 50 times."""
    labels = np.tile(split.labels, 50)
    sizes = np.tile(split.sizes, 50)
    return as_kind(split, kind, names=tuple(split.names) * 50, labels=labels, sizes=sizes)


class SlowSplit(FileSplit):
    """A disk that answers after 2 ms, however much it is asked for; `at_once` has, for each read,
    how many were asked for when it began.
    """

    at_once: ClassVar[list[int]] = []
    asked = 0
    lock = threading.Lock()

    def read(self, index: int) -> bytes:
        kind = type(self)
        with self.lock:
            kind.asked += 1
            self.at_once.append(kind.asked)
        time.sleep(0.002)
        with self.lock:
            kind.asked -= 1
        return super().read(index)


def test_a_slow_disk_does_not_limit_a_worker(photographs, monkeypatch):
    """One after the other, 900 files would take 1.8 s longer than from memory."""
    monkeypatch.setattr(SlowSplit, "at_once", [])
    feed = feed_on(photographs, tiled(photographs.train, SlowSplit), batch_size=100)
    bytes_of(feed, range(9))
    feed.close()
    assert np.mean(SlowSplit.at_once) > 2


def test_a_slow_disk_does_not_hold_up_evaluation(photographs, monkeypatch):
    monkeypatch.setattr(SlowSplit, "at_once", [])
    slow = tiled(photographs.train, SlowSplit)
    assert sum(map(len, slow.eval_images(np.arange(900).reshape(9, 100), photographs.input))) == 900
    assert np.mean(SlowSplit.at_once) > 2


class CountingSplit(FileSplit):
    """Counts what is read."""

    count = 0

    def read(self, index: int) -> bytes:
        type(self).count += 1
        return super().read(index)


def test_a_feed_reads_a_bounded_window_ahead(photographs):
    many = tiled(photographs.train, CountingSplit)
    feed = feed_on(photographs, many, batch_size=10)
    assert len(many) == 1050
    feed.batch(0)
    time.sleep(0.2)
    assert 20 <= CountingSplit.count <= 20 + 64
    feed.close()


@pytest.fixture
def photographs_of_8_mb(photographs):
    """Files of 8 MB that decode quickly: a JPEG may be followed by any bytes."""
    path = Path("large.jpg")
    path.write_bytes(photographs.train.read(0) + bytes(8 << 20))
    sizes = np.full(400, path.stat().st_size)
    labels = np.zeros(400, np.int32)
    train = FileSplit("", (str(path.resolve()),) * 400, labels, sizes, threads=2)
    return replace(photographs, train=train)


@pytest.fixture
def peak():
    """peak() is the largest number of bytes that Python and NumPy have held, since the test
    began.
    """
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


def test_a_feed_of_large_files_holds_256_mb(photographs_of_8_mb, peak):
    feed = make_feed(photographs_of_8_mb, RECIPE.changed(batch_size=40))
    bytes_of(feed, range(3))
    feed.close()
    assert peak() < 256 << 20


def test_an_evaluation_of_large_files_holds_256_mb(photographs_of_8_mb, peak):
    batches = np.arange(80).reshape(2, 40)
    for _ in photographs_of_8_mb.train.eval_images(batches, photographs_of_8_mb.input):
        pass
    assert peak() < 256 << 20


def test_a_feed_of_large_batches_holds_two(photographs, peak):
    many = tiled(photographs.train, FileSplit)
    feed = feed_on(photographs, many, batch_size=300, image_size=224, erasing=0.0)
    for update in range(3):
        feed.batch(update)  # a caller that still held the one before would hold a third
    feed.close()
    two_batches = 2 * 300 * 3 * 224**2 * 4
    assert 256 << 20 < two_batches < peak() < 1.02 * two_batches


def tasks() -> int:
    return len(os.listdir("/proc/self/task"))


def test_threads_end_when_a_feed_is_closed(photographs, wait_until):
    # threads that the library starts once and keeps
    bytes_of(make_feed(photographs, RECIPE), range(10))
    before = tasks()
    for _ in range(5):
        feed = make_feed(photographs, RECIPE)
        bytes_of(feed, range(5))
        bytes_of(feed, range(5, 8))
        feed.batch(0)
        feed.close()
        feed.close()
    wait_until(lambda: tasks() <= before, 5)


def test_a_script_that_closes_nothing_ends_silently(folder, python):
    """After a few updates, and in the middle of an evaluation: Python empties its modules before it
    drops the rest.
    """
    code = (
        "import sys, resnet_fn, numpy as np; resnet_fn.start()\n"
        "recipe = resnet_fn.Recipe(dataset='imagefolder', image_size=24, batch_size=4)\n"
        "dataset = resnet_fn.open_dataset(recipe, sys.argv[1])\n"
        "feed = resnet_fn.make_feed(dataset, recipe)\n"
        "feed.batch(0)\n"
        "images = dataset.test.eval_images([np.arange(3), np.arange(3, 6), np.arange(6, 9)], "
        "dataset.input)\n"
        "print(next(images).shape)"
    )
    done = python("-c", code, folder)
    assert (done.stdout, done.stderr) == ("(3, 3, 24, 24)\n", "")
