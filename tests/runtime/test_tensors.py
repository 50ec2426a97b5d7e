"""Arrays handed over without a copy: shared, and held as long as they are read."""

import sys

import mindspore
import numpy as np
import pytest

from resnet_fn.data.file_feed import Buffers
from resnet_fn.runtime.tensors import hand_over

pytestmark = pytest.mark.usefixtures("device")


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int32])
def test_a_tensor_reads_the_arrays_own_memory(dtype):
    array = np.zeros((2, 3), dtype)
    tensor = hand_over(array)
    array[1, 2] = 7
    assert tensor.asnumpy().tolist() == [[0, 0, 0], [0, 0, 7]]
    assert tensor.asnumpy().dtype == dtype


def test_rows_apart_in_memory_are_copied():
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert hand_over(array[:, ::2]).asnumpy().tolist() == [[0, 2], [4, 6], [8, 10]]


def total(x):
    return x.sum()


def test_memory_is_not_given_out_again_before_the_function_that_reads_it_is_called_anew():
    compiled, buffers = mindspore.jit(total), Buffers((8, 3, 32, 32))
    sums, places = [], []
    for number in range(12):
        array = buffers.take()
        array[:] = number
        places.append(array.ctypes.data)
        result = compiled(hand_over(array))
        del array
        following = buffers.take()  # what is prepared while the device may still read
        assert following.ctypes.data != places[-1]
        following[:] = -1
        sums.append(float(result.asnumpy()))
        del following
    assert sums == [number * 8.0 * 3 * 32 * 32 for number in range(12)]
    assert len(set(places)) <= 3  # and given out again it is


def test_an_array_is_let_go_with_its_tensor():
    array = np.zeros(3, np.float32)
    before = sys.getrefcount(array)
    tensor = hand_over(array)
    assert sys.getrefcount(array) > before
    del tensor
    assert sys.getrefcount(array) == before
