"""Every validation sample is scored once, or the run ends."""

import numpy as np
import pytest
from mindspore import Tensor

from resnet_fn.data.sources.bundled import load_digits
from resnet_fn.evaluation.eval_step import EvalResult
from resnet_fn.evaluation.scoring import score

pytestmark = pytest.mark.usefixtures("device")


@pytest.mark.parametrize(
    ("batch_size", "sizes"), [(1, {1}), (8, {8}), (63, {63}), (64, {64}), (256, {64})]
)
def test_evaluation_passes_at_most_64_samples_at_once(batch_size, sizes):
    """Each of the 360 images is scored once, whatever the size."""
    dataset, seen = load_digits(), set()

    def step(images, labels):
        seen.add(len(images))
        sums = images.sum((1, 2, 3)) + labels
        return EvalResult(sums, labels, Tensor(np.zeros(len(images), np.int32)))

    scores = score(step, dataset, batch_size)
    assert seen == sizes
    assert np.array_equal(scores.prediction, dataset.test.labels)


def test_an_error_of_the_step_is_raised():
    def step(images, labels):
        raise ZeroDivisionError("one")

    with pytest.raises(ZeroDivisionError, match="one"):
        score(step, load_digits(), 64)
