"""A process alone is the main worker of one. (Real workers: tests/run/test_loop.py.)"""

import numpy as np
import pytest

from resnet_fn.runtime import workers
from resnet_fn.runtime.workers import Workers, barrier, broadcast_text, join, launched_by_msrun, sum_over_ranks


def test_without_msrun_a_process_is_alone(monkeypatch):
    monkeypatch.delenv("MS_ROLE", raising=False)
    monkeypatch.setattr(workers, "_joined", None)
    assert not launched_by_msrun()
    assert join() == Workers(0, 1)
    values = np.arange(3, dtype=np.float32)
    assert sum_over_ranks(values, join()) is values
    assert broadcast_text("grüße", join()) == "grüße"
    barrier(join())


def test_a_role_that_msrun_does_not_give_is_named(monkeypatch):
    monkeypatch.setenv("MS_ROLE", "MS_WORKR")
    monkeypatch.setattr(workers, "_joined", None)
    with pytest.raises(ValueError, match=r"^MS_ROLE: 'MS_WORKR' is unknown; use one of MS_WORKER, MS_SCHED$"):
        join()
