from pathlib import Path

import numpy as np

from resnet_fn.run.not_finite import describe, find_suspects
from resnet_fn.runtime.workers import Workers


def test_where_no_rank_shows_it_none_is_cleared():
    """A gradient that overflows beyond the first layer, or in the sum: all ranks' samples are kept and named."""
    images, indices = np.zeros((3, 1, 2, 2), np.float32), np.array([7, 1, 4])
    assert find_suspects(np.array([0, 1, 0])).tolist() == [1]
    assert find_suspects(np.zeros(3)).tolist() == [0, 1, 2]
    assert describe(9, np.zeros(1), images, indices, Path("run"), Workers()) == (
        "update 9: loss or gradients are not finite on one of these, or in their sum: rank 0, samples 7 1 4; "
        "the batch is kept in run: not-finite-00000009-rank-0.npz"
    )
