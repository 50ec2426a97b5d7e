"""What every feed from image files holds, exact or fast: any update directly, one line for a lost file, a slow disk
does not hold it up, nothing left behind."""

import dataclasses
import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.feed import make_feed
from resnet_fn.data.sources.files import FileSplit
from resnet_fn.data.sources.load import load_dataset
from resnet_fn.data.sources.scan import check_files

FIELDS = {"dataset": "imagefolder", "image_size": 24, "batch_size": 4, "flip": True, "erasing": 0.5, "epochs": 3}


@pytest.fixture(params=["exact", "fast"])
def recipe(request):
    return Recipe(**FIELDS, image_pipeline=request.param)


@pytest.fixture
def photographs(folder):
    return check_files(load_dataset(Recipe(**FIELDS), str(folder)), "error")


def bytes_of(feed, updates):
    return [feed.batch(update)[0].tobytes() for update in updates]


def test_any_update_found_directly_equals_the_walk_bit_for_bit(photographs, recipe):
    walk = bytes_of(make_feed(photographs, recipe), range(13))
    for start in (0, 3, 5, 7):
        assert bytes_of(make_feed(photographs, recipe), range(start, 13)) == walk[start:]
    back = make_feed(photographs, recipe)
    assert bytes_of(back, [6, 2, 6]) == [walk[6], walk[2], walk[6]]
    assert len(set(walk)) == 13


def test_a_file_that_vanishes_or_changes_ends_the_run_in_one_line(photographs, recipe):
    path = Path(photographs.train.path(3))
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(ValueError, match=r"bee/03 ü.JPEG: has changed since it was checked; start the command again$"):
        bytes_of(make_feed(photographs, recipe), range(5))
    path.unlink()
    with pytest.raises(ValueError, match=r"bee/03 ü.JPEG: cannot be read \(No such file or directory\)"):
        bytes_of(make_feed(photographs, recipe), range(5))


def tiled(split: FileSplit, kind: type[FileSplit]) -> FileSplit:
    """Each sample 50 times."""
    fields = {field.name: getattr(split, field.name) for field in dataclasses.fields(split)}
    places = np.tile(np.arange(21), 50)
    fields |= {"names": tuple(split.names[k] for k in places)}
    fields |= {name: fields[name][places] for name in ("labels", "sizes", "converted")}
    return kind(**fields)


class SlowSplit(FileSplit):
    """A disk that answers after 2 ms, however little it is asked for."""

    def read(self, index: int) -> bytes:
        time.sleep(0.002)
        return super().read(index)


def test_a_disk_with_2_ms_of_latency_does_not_cap_a_worker(photographs, recipe):
    """One after the other, 900 files would take 1.8 s longer than from memory."""

    def seconds(kind):
        split = tiled(photographs.train, kind)
        feed = make_feed(dataclasses.replace(photographs, train=split), dataclasses.replace(recipe, batch_size=100))
        feed.batch(0)
        began = time.perf_counter()
        for update in range(1, 10):
            feed.batch(update)
        took = time.perf_counter() - began
        feed.close()
        return took

    assert seconds(SlowSplit) < seconds(FileSplit) + 0.9


def test_nor_does_it_hold_up_evaluation(photographs):
    slow = tiled(photographs.train, SlowSplit)
    spec = dataclasses.replace(photographs.input, image_size=24, eval_resize=28)
    began = time.perf_counter()
    assert sum(len(images) for images in slow.eval_images(np.arange(900).reshape(9, 100), spec)) == 900
    assert time.perf_counter() - began < 1.8


class CountingSplit(FileSplit):
    """Counts what is read."""

    count = 0

    def read(self, index: int) -> bytes:
        type(self).count += 1
        return super().read(index)


def test_the_exact_one_reads_and_decodes_a_bounded_window_ahead(photographs):
    """This update, the next one, and the 64 files that are read ahead: not the epoch."""
    many = tiled(photographs.train, CountingSplit)
    feed = make_feed(dataclasses.replace(photographs, train=many), Recipe(**FIELDS | {"batch_size": 10}))
    assert len(many) == 1050
    feed.batch(0)
    time.sleep(0.2)
    assert 20 <= CountingSplit.count <= 20 + 64
    feed.close()


def tasks() -> int:
    return len(os.listdir("/proc/self/task"))


def python_threads() -> int:
    """Those that Python started: a C++ thread that once called Python stays listed after its end."""
    return sum(not isinstance(thread, threading._DummyThread) for thread in threading.enumerate())


def test_no_thread_is_left_behind_after_an_end_a_break_or_a_failure(photographs, recipe):
    bytes_of(make_feed(photographs, recipe), range(10))  # whatever the library starts once and for all
    python, before = python_threads(), tasks()
    for _ in range(5):
        feed = make_feed(photographs, recipe)
        bytes_of(feed, range(5))
        bytes_of(feed, range(5, 8))
        feed.batch(0)
        feed.close()
        feed.close()
    deadline = time.monotonic() + 5
    while tasks() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert tasks() <= before
    assert python_threads() <= python
