"""Numbers that float32 does not hold. (Real workers: tests/run/test_loop.py.)"""

import numpy as np

from resnet_fn.runtime.workers import Workers, exchange_numbers


def test_numbers_travel_exactly():
    """As float32, in which workers sum."""
    numbers = np.array([0, 1, 2**24 - 1, 2**24 + 1, 2**31 + 3, 2**48 - 1])
    assert exchange_numbers(numbers, Workers()).tolist() == numbers.tolist()
