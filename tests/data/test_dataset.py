"""Evaluation gets every sample once, in batches of one size."""

import numpy as np
import pytest

from resnet_fn.data.dataset import eval_batches
from resnet_fn.data.sources.bundled import load_digits
from resnet_fn.runtime.workers import Workers

DIGITS = load_digits()


@pytest.mark.parametrize(
    ("workers", "batch_size", "block"),
    [(1, 1, 1), (1, 360, 1), (7, 13, 1), (2, 1000, 1), (1, 192, 64), (3, 128, 64), (8, 64, 64)],
)
def test_evaluation_reads_every_sample_once_in_order(workers, batch_size, block):
    seen = []
    lengths = set()
    for rank in range(workers):
        worker = Workers(rank, workers)
        batches = list(eval_batches(DIGITS.test, DIGITS.input, batch_size, worker, block))
        lengths.add(len(batches))
        for images, labels, numbers in batches:
            assert images.shape == (batch_size, 1, 8, 8)
            samples = numbers[numbers >= 0]
            assert (np.flatnonzero(numbers >= 0) % block == samples % block).all()
            assert (labels == DIGITS.test.labels[np.maximum(numbers, 0)]).all()
            seen += samples.tolist()
    assert sorted(seen) == list(range(360))
    assert len(lengths) == 1  # no worker waits in the exchange that follows
