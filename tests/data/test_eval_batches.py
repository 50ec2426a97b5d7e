"""An evaluation meets every sample once, whatever the workers and the batch size."""

import numpy as np
import pytest

from resnet_fn.data.dataset import eval_batches
from resnet_fn.data.sources.bundled import load_digits
from resnet_fn.runtime.workers import Workers

DIGITS = load_digits()


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
@pytest.mark.parametrize("batch_size", [1, 13, 360, 1000])
def test_evaluation_meets_every_sample_once_in_equal_batches(workers, batch_size):
    seen, lengths = [], set()
    for rank in range(workers):
        batches = list(eval_batches(DIGITS.test, DIGITS.input, batch_size, Workers(rank, workers)))
        lengths.add(len(batches))
        for images, labels, indices in batches:
            assert images.shape == (batch_size, 1, 8, 8)
            real = indices >= 0
            assert (labels[real] == DIGITS.test.labels[indices[real]]).all()
            seen += indices[real].tolist()
    assert sorted(seen) == list(range(360))
    assert len(lengths) == 1  # nobody waits for ever in the exchange that follows


@pytest.mark.parametrize(("workers", "batch_size"), [(1, 64), (1, 192), (2, 64), (3, 128), (8, 64)])
def test_a_sample_has_its_own_place_among_64_however_it_is_evaluated(workers, batch_size):
    seen, lengths = [], set()
    for rank in range(workers):
        batches = list(eval_batches(DIGITS.test, DIGITS.input, batch_size, Workers(rank, workers), 64))
        lengths.add(len(batches))
        for _, _, indices in batches:
            places = np.flatnonzero(indices >= 0)
            assert (places % 64 == indices[places] % 64).all()
            seen += indices[places].tolist()
    assert sorted(seen) == list(range(360))
    assert len(lengths) == 1
