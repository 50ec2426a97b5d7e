"""Every test runs in a folder of its own, on one device, from one seed."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import resnet_fn  # noqa: F401  (sets MindSpore's environment before anything imports it)


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Run in an empty folder, and fail a test that leaves MindSpore's artefacts in it."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    stray = [name for name in os.listdir(tmp_path) if name.startswith(("rank_", "kernel_meta", "mslog"))]
    assert not stray


@pytest.fixture(scope="session")
def device() -> None:
    """MindSpore on the CPU, started once."""
    import mindspore

    from resnet_fn import runtime

    runtime.start("CPU")
    mindspore.set_seed(1)
