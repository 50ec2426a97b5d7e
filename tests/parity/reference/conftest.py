"""These tests are of what is written in torch: without it there is nothing to collect."""

import importlib.util
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def torch() -> Any:
    return pytest.importorskip("torch")
