"""A role that no launcher gives; numbers that float32 does not hold. (Real workers: tests/run/test_loop.py.)"""

import numpy as np
import pytest

from resnet_fn.runtime import workers
from resnet_fn.runtime.workers import join, join_halves, split_halves


def test_a_role_that_msrun_does_not_give_is_named(monkeypatch):
    monkeypatch.setenv("MS_ROLE", "MS_WORKR")
    monkeypatch.setattr(workers, "_joined", None)
    with pytest.raises(ValueError, match=r"^MS_ROLE: 'MS_WORKR' is unknown; use one of MS_WORKER, MS_SCHED$"):
        join()


def test_numbers_travel_exactly():
    """As float32, in which workers sum: each number is one rank's, and zero on the others."""
    numbers = np.array([0, 1, 2**24 - 1, 2**24 + 1, 2**31 + 3, 2**48 - 1])
    ranks = [np.where(np.arange(6) % 3 == rank, numbers, 0) for rank in range(3)]
    halves = sum(split_halves(values) for values in ranks)
    assert halves.dtype == np.float32
    assert join_halves(halves).tolist() == numbers.tolist()
