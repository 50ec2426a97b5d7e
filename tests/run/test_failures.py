from pathlib import Path

import numpy as np
import pytest

from resnet_fn.run.failures import describe_not_finite, find_suspects
from resnet_fn.runtime.workers import Workers


@pytest.mark.parametrize("shape", [(1, 2, 2), (4,), ()])
def test_samples_are_named_by_what_shows_the_fault(shape):
    """Samples that are not finite alone; if no rank shows anything (a later layer's gradient, the sum), all of all."""
    images, indices = np.zeros((3, *shape), np.float32), np.array([7, 1, 4])
    assert find_suspects(np.array([0, 1, 0])).tolist() == [1]
    assert find_suspects(np.zeros(3)).tolist() == [0, 1, 2]
    start = "update 9: loss or gradients are not finite on "
    end = "; the batch is kept in run: not-finite-00000009-rank-0.npz"
    text = describe_not_finite(9, np.zeros(1), images, indices, Path("run"), Workers())
    assert text == f"{start}one of these, or in their sum: rank 0, samples 7 1 4{end}"
    images.reshape(3, -1)[1, -1] = np.inf
    text = describe_not_finite(9, np.ones(1), images, indices, Path("run"), Workers())
    assert text == f"{start}rank 0, samples 1{end}"
