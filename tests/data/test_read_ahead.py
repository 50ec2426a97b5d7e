"""Reading that overlaps: in order, a window at a time, no thread left."""

import threading
import time

import pytest
from resnet_fn.data.read_ahead import read_ahead


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


def test_an_error_comes_when_its_items_turn_does_and_leaves_no_thread():
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


def test_threads_end_when_the_reader_stops_early():
    before = threading.active_count()
    results = read_ahead(abs, range(1000))
    next(results)
    results.close()
    assert threading.active_count() <= before
