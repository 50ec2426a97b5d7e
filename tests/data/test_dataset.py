"""What a data set and a batch must be, and that an evaluation meets every sample once."""

import dataclasses

import numpy as np
import pytest

from resnet_fn.data.dataset import check_images, check_labels, eval_batches
from resnet_fn.data.sources.bundled import load_digits
from resnet_fn.runtime.workers import Workers


def test_images_of_another_shape_or_dtype_are_rejected():
    digits = load_digits()
    check_images(digits)
    check_labels(digits.train, 10, "training set")
    for images, text in (
        (digits.test.images.astype(np.float32), "test set: its images are float32 [360, 8, 8, 1]; give uint8"),
        (digits.test.images[..., 0], "test set: its images are uint8 [360, 8, 8]; give uint8 [N, H, W, C]"),
        (np.repeat(digits.test.images, 3, 3), "test set: its images have 3 channels, mean and std 1"),
        (digits.test.images[:5], "test set: its labels are int32 [360]; give int32 [5], one an image"),
    ):
        wrong = dataclasses.replace(digits, test=dataclasses.replace(digits.test, images=images))
        with pytest.raises(ValueError) as caught:
            check_images(wrong)
        assert str(caught.value).startswith(text)


DIGITS = load_digits()


@pytest.mark.parametrize(
    ("workers", "batch_size", "block"),
    [(1, 1, 1), (1, 360, 1), (7, 13, 1), (2, 1000, 1), (1, 192, 64), (3, 128, 64), (8, 64, 64)],
)
def test_evaluation_meets_every_sample_once_at_its_place_in_equal_batches(workers, batch_size, block):
    seen, lengths = [], set()
    for rank in range(workers):
        batches = list(eval_batches(DIGITS.test, DIGITS.input, batch_size, Workers(rank, workers), block))
        lengths.add(len(batches))
        for images, labels, indices in batches:
            assert images.shape == (batch_size, 1, 8, 8)
            places = np.flatnonzero(indices >= 0)
            assert (places % block == indices[places] % block).all()
            assert (labels[places] == DIGITS.test.labels[indices[places]]).all()
            seen += indices[places].tolist()
    assert sorted(seen) == list(range(360))
    assert len(lengths) == 1  # no worker waits in the exchange that follows
