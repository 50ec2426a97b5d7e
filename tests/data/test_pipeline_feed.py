"""Updates through MindSpore's C++ pipeline: the same bits for equal threads and workers, nothing left behind."""

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
RECIPE = Recipe(**FIELDS, image_pipeline="fast")


@pytest.fixture
def photographs(folder):
    dataset = check_files(load_dataset(RECIPE, str(folder)), "error")
    return dataset


def bytes_of(feed, updates):
    return [feed.batch(update)[0].tobytes() for update in updates]


def test_any_update_found_directly_equals_the_walk_bit_for_bit(photographs):
    walk = bytes_of(make_feed(photographs, RECIPE), range(13))
    for start in (0, 3, 5, 7):
        assert bytes_of(make_feed(photographs, RECIPE), range(start, 13)) == walk[start:]
    back = make_feed(photographs, RECIPE)
    assert bytes_of(back, [6, 2, 6]) == [walk[6], walk[2], walk[6]]
    assert len(set(walk)) == 13


def test_a_resume_inside_an_epoch_reads_only_its_own_stretch(tmp_path, make_photograph, encode):
    """1,024 images have a pipeline; what lay before the stretch is not even there any more."""
    files = [encode(make_photograph(seed)) for seed in range(7)]
    for name in ("bee", "cat"):
        for number in range(1200):
            path = tmp_path / "train" / name / f"{number}.JPEG"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(files[number % 7])
        (tmp_path / "val" / name).mkdir(parents=True)
        (tmp_path / "val" / name / "0.JPEG").write_bytes(files[0])
    recipe = dataclasses.replace(RECIPE, batch_size=100)  # 24 updates of 100; stretches of 10
    dataset = check_files(load_dataset(recipe, str(tmp_path)), "error")
    walk = make_feed(dataset, recipe)
    whole = bytes_of(walk, range(24))
    for update in range(10):
        for index in walk.indices(update):
            Path(dataset.train.path(index)).unlink()
    assert bytes_of(make_feed(dataset, recipe), range(13, 24)) == whole[13:]
    assert bytes_of(make_feed(dataset, recipe), [20]) == whole[20:21]
    assert len(set(whole)) == 24


def test_every_augmentation_repeats(photographs):
    for fields in (
        {"policy": "trivialaugment"},
        {"policy": "randaugment"},
        {"policy": "randaugment", "policy_noise": 1.5},
        {"policy": "autoaugment"},
        {"color_jitter": 0.4},
    ):
        recipe = dataclasses.replace(RECIPE, **fields)
        one, two = (
            bytes_of(make_feed(photographs, recipe), range(6)),
            bytes_of(make_feed(photographs, recipe), range(6)),
        )
        assert one == two
        assert one != bytes_of(make_feed(photographs, RECIPE), range(6)), fields


def test_a_file_that_vanishes_or_changes_ends_the_run_in_one_line(photographs):
    path = Path(photographs.train.path(3))
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(ValueError, match=r"bee/03 ü.JPEG: has changed since it was checked; start the command again$"):
        bytes_of(make_feed(photographs, RECIPE), range(5))
    path.unlink()
    with pytest.raises(ValueError, match=r"bee/03 ü.JPEG: cannot be read \(No such file or directory\)"):
        bytes_of(make_feed(photographs, RECIPE), range(5))


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


def test_a_disk_with_2_ms_of_latency_does_not_cap_a_worker(photographs):
    """One after the other, 900 files would take 1.8 s longer than from memory."""

    def seconds(kind):
        split = tiled(photographs.train, kind)
        feed = make_feed(dataclasses.replace(photographs, train=split), dataclasses.replace(RECIPE, batch_size=100))
        feed.batch(0)
        began = time.perf_counter()
        for update in range(1, 10):
            feed.batch(update)
        took = time.perf_counter() - began
        feed.close()
        return took

    assert seconds(SlowSplit) < seconds(FileSplit) + 0.9


def tasks() -> int:
    return len(os.listdir("/proc/self/task"))


def python_threads() -> int:
    """Those that Python started: a C++ thread that once called Python stays listed after its end."""
    return sum(not isinstance(thread, threading._DummyThread) for thread in threading.enumerate())


def test_no_thread_is_left_behind_after_an_end_a_break_or_a_failure(photographs):
    bytes_of(make_feed(photographs, RECIPE), range(10))  # whatever the library starts once and for all
    python, before = python_threads(), tasks()
    for _ in range(5):
        feed = make_feed(photographs, RECIPE)
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
