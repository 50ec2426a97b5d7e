"""Memory is given out again once nobody holds it, and never before."""

import numpy as np

from resnet_fn.data.file_feed import Buffers


def test_what_is_held_is_not_given_out_and_what_is_let_go_is():
    buffers = Buffers((2, 3), limit=2)
    held = [buffers.take() for _ in range(5)]
    assert len({array.ctypes.data for array in held}) == 5
    assert all((array.shape, array.dtype) == ((2, 3), np.float32) for array in held)
    kept = {array.ctypes.data for array in held[:2]}
    held.clear()
    again = [buffers.take() for _ in range(2)]
    assert {array.ctypes.data for array in again} == kept


def test_a_view_holds_an_array_too():
    buffers = Buffers((4,))
    view = buffers.take()[1:]
    assert not np.shares_memory(buffers.take(), view)
