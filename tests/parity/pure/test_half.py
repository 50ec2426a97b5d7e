"""Rounding of float32 numbers to the digits of a shorter float."""

import numpy as np

from resnet_fn.parity.ways.half import rounded


def test_arrays_without_axes_stay_arrays():
    value = rounded(np.array(np.float32(1.001)), "bfloat16")
    assert isinstance(value, np.ndarray)
    assert (value.shape, value.dtype, value.item()) == ((), np.float32, 1.0)
