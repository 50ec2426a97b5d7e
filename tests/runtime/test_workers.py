"""A role that no launcher gives. (Real workers: tests/run/test_loop.py.)"""

import pytest

from resnet_fn.runtime import workers
from resnet_fn.runtime.workers import join


def test_a_role_that_msrun_does_not_give_is_named(monkeypatch):
    monkeypatch.setenv("MS_ROLE", "MS_WORKR")
    monkeypatch.setattr(workers, "_joined", None)
    with pytest.raises(ValueError, match=r"^MS_ROLE: 'MS_WORKR' is unknown; use one of MS_WORKER, MS_SCHED$"):
        join()
