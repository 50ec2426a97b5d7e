"""Every test runs in a folder of its own, on one device, from one seed."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
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


@pytest.fixture
def msrun() -> Callable[..., str]:
    """msrun(workers, *command) runs a Python command on several workers and returns rank 0's log."""

    def run(workers: int, *command: str) -> str:
        here = Path(sys.executable).parent
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        done = subprocess.run(
            [
                *(here / "msrun", "--worker_num", str(workers), "--local_worker_num", str(workers)),
                *("--join", "True", "--log_dir", "logs", "--master_port", str(port), "python", *command),
            ],
            capture_output=True,
            text=True,
            timeout=600,
            env={**os.environ, "PATH": f"{here}:{os.environ['PATH']}"},
        )
        log = Path("logs/worker_0.log").read_text()
        assert done.returncode == 0, log + done.stderr
        return log

    return run
