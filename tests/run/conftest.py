"""A fixture that ends runs early, as far as their folders show."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from resnet_fn.checkpoint.run_folder import RunFolder


@pytest.fixture(scope="session")
def cut_after() -> Callable[..., None]:
    """cut_after(run, update): the run has saved nothing after this update."""

    def cut(path, update):
        run = RunFolder(Path(path))
        for later in run.updates():
            if later > update:
                shutil.rmtree(run.checkpoint_path(later))

    return cut
