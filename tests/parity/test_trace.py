"""Batches are random, can be learnt, and are refused where they do not fit a compiled step."""

import numpy as np
import pytest

from resnet_fn.parity.trace import check_batches, make_batches


def test_batches_are_the_seeds_and_each_class_has_its_pattern():
    batches = make_batches(40, 16, 3, 8, 4, seed=5)
    images, labels = batches[0]
    assert (images.shape, images.dtype, labels.shape, labels.dtype) == ((16, 3, 8, 8), np.float32, (16,), np.int32)
    assert images.tobytes() == make_batches(1, 16, 3, 8, 4, seed=5)[0][0].tobytes()
    assert images.tobytes() != make_batches(1, 16, 3, 8, 4, seed=6)[0][0].tobytes()
    images, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    assert set(labels) == {0, 1, 2, 3}
    means = np.stack([images[labels == label].mean(0).ravel() for label in range(4)])
    # The nearest mean tells the class; the values have the variance of pattern and noise, 2 · 0.7².
    assert (((images.reshape(len(images), 1, -1) - means) ** 2).sum(2).argmin(1) == labels).mean() > 0.99
    assert images.var() == pytest.approx(2 * 0.7**2, rel=0.1)


@pytest.mark.parametrize(
    ("sizes", "accumulate", "message"),
    [
        ([], 1, "batches: there are none; give one for each update"),
        ([(8, 8), (8, 7)], 1, "batches: batch 1 has 8 images, 7 labels; give 8 each"),
        ([(8, 8), (4, 4)], 1, "batches: batch 1 has 4 images, 4 labels; give 8 each"),
        ([(8, 8)], 3, "accumulate: 3 does not divide the batch of 8; give a divisor of 8"),
    ],
)
def test_batches_that_do_not_fit_are_refused(sizes, accumulate, message):
    batches = [(np.zeros((images, 1, 2, 2), np.float32), np.zeros(labels, np.int32)) for images, labels in sizes]
    with pytest.raises(ValueError) as error:
        check_batches(batches, accumulate)
    assert str(error.value) == message
