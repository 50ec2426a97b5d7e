"""The next batch is prepared in a thread, and its error reaches the loop."""

import threading

import mindspore
import numpy as np
import pytest

from resnet_fn.data.file_feed import Buffers
from resnet_fn.run.prefetch import Prefetcher, to_device

pytestmark = pytest.mark.usefixtures("device")


class Feed:
    """Batches of one number. From the second on, they wait for the gate."""

    def __init__(self):
        self.gate = threading.Event()
        self.asked = []
        self.threads = []

    def batch(self, update):
        self.asked.append(update)
        self.threads.append(threading.current_thread())
        assert not update or self.gate.wait(60)
        return np.full(1, update, np.float32), np.zeros(1, np.int32)


def test_the_next_batch_is_prepared_in_a_thread():
    """(A batch that cannot be prepared: test_failures.)"""
    feed = Feed()
    prefetcher = Prefetcher(feed, 2, (np.zeros(1, np.float32), np.zeros(1, np.int32)))
    first = prefetcher.get(0)
    assert first.batch[0].item() == 0
    assert first.seconds > 0
    prefetcher.start(1)  # comes back though the feed stands still
    feed.gate.set()
    assert prefetcher.get(1).tensors[0].asnumpy().item() == 1
    assert feed.asked == [0, 1]  # once each
    assert threading.main_thread() not in feed.threads
    prefetcher.start(2)  # nothing is prepared beyond the last update
    prefetcher.close()
    assert feed.asked == [0, 1]
    assert not any(thread.is_alive() for thread in feed.threads)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int32])
def test_a_tensor_reads_the_arrays_own_memory(dtype):
    array = np.zeros((2, 3), dtype)
    tensor = to_device(array)
    array[1, 2] = 7
    assert tensor.asnumpy().tolist() == [[0, 0, 0], [0, 0, 7]]
    assert tensor.asnumpy().dtype == dtype


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int32])
def test_a_cards_tensor_is_always_a_copy(dtype):
    """Aligned or not: the array may be written again at once."""
    for start in (0, 1, 3):
        memory = np.zeros(start + 6 * np.dtype(dtype).itemsize, np.uint8)
        array = memory[start:].view(dtype).reshape(2, 3)
        tensor = to_device(array, card=True)
        array[1, 2] = 7
        assert tensor.asnumpy().tolist() == [[0, 0, 0], [0, 0, 0]]
        assert tensor.asnumpy().dtype == dtype


def test_rows_apart_in_memory_are_copied():
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert to_device(array[:, ::2]).asnumpy().tolist() == [[0, 2], [4, 6], [8, 10]]


def test_buffers_are_reused_after_the_next_call():
    @mindspore.jit
    def total(x):
        return x.sum()

    buffers = Buffers((8, 3, 32, 32))
    sums = []
    places = []
    for number in range(12):
        array = buffers.take()
        array[:] = number
        places.append(array.ctypes.data)
        result = total(to_device(array))
        del array
        following = buffers.take()  # what is prepared while the device may still read
        assert following.ctypes.data != places[-1]
        following[:] = -1
        sums.append(float(result.asnumpy()))
        del following
    assert sums == [number * 8.0 * 3 * 32 * 32 for number in range(12)]
    assert len(set(places)) <= 3  # and given out again it is
