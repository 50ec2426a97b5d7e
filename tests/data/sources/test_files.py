"""Image files as samples: read ahead in order, evaluated once."""

import dataclasses
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.dataset import BadSampleError
from resnet_fn.data.sources.files import read_ahead
from resnet_fn.data.sources.load import load_dataset

RECIPE = Recipe(dataset="imagefolder", image_size=24, batch_size=4)


def test_a_sample_is_its_files_bytes_unless_the_file_has_changed(folder):
    split = load_dataset(RECIPE, str(folder)).train
    path = Path(split.path(3))
    assert path == folder / "train" / "bee" / "03 ü.JPEG"
    data = path.read_bytes()
    assert split.read(3) == data
    checked = dataclasses.replace(split, sizes=np.full(len(split), len(data)))
    path.write_bytes(data + b"more")
    with pytest.raises(BadSampleError, match=r"bee/03 ü.JPEG: has changed since the command began; start it again$"):
        checked.read(3)
    path.unlink()
    with pytest.raises(BadSampleError, match=r"bee/03 ü.JPEG: cannot be read \(No such file .*\); fix it"):
        checked.read(3)


def test_results_come_in_order_from_a_window_that_does_not_grow():
    begun, done = [], 0

    def square(number):
        begun.append(number)
        time.sleep(0.001 * (number % 3))
        return number**2

    for number, result in read_ahead(square, iter(range(500)), threads=8):
        assert (number, result) == (done, done**2)
        done += 1
        assert len(begun) <= done + 4 * 8
    assert done == 500


def test_an_error_comes_at_its_items_turn_and_no_thread_is_left_then_or_after_an_early_stop():
    before = threading.active_count()

    def fail(number):
        if number == 7:
            raise OSError("gone")
        return number

    results = read_ahead(fail, range(1000))
    assert [next(results)[0] for _ in range(7)] == list(range(7))
    with pytest.raises(OSError, match="gone"):
        next(results)
    assert threading.active_count() <= before
    results = read_ahead(abs, range(1000))
    next(results)
    results.close()
    assert threading.active_count() <= before
