"""One error for all workers, with the text of each."""

import pytest

from resnet_fn.data.dataset import BadSampleError
from resnet_fn.data.worker_errors import error_of_all
from resnet_fn.runtime.workers import Workers


@pytest.mark.parametrize("error", [BadSampleError("a.jpg: cut"), MemoryError(), OSError(5, "x")])
def test_one_worker_raises_its_own_error(error):
    """(Of several workers: tests/faults/test_launcher.py and test_bad_file.py.)"""
    assert error_of_all(error, Workers()) is error
