"""The digits of the package and the synthetic data set."""

import numpy as np
import pytest

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.bundled import load_digits
from resnet_fn.data.sources.load import load_dataset

DIGITS = load_digits()


def test_digits_are_the_documented_ones():
    assert DIGITS.train.images.shape == (1437, 8, 8, 1)
    assert len(DIGITS.test) == 360
    pixels = DIGITS.train.images / 16
    moments = (*DIGITS.input.mean, *DIGITS.input.std)
    assert moments == pytest.approx((pixels.mean(), pixels.std()), abs=1e-6)
    assert set(DIGITS.train.labels) == set(DIGITS.test.labels) == set(range(10))


def test_synthetic_data_are_reproducible():
    recipe = Recipe(dataset="synthetic", synthetic_samples=40, synthetic_classes=7, image_size=24)
    first, second = (load_dataset(recipe).train for _ in range(2))
    assert first.images.shape == (40, 24, 24, 3)
    np.testing.assert_array_equal(first.images, second.images)
    assert np.unique(first.labels).tolist() == list(range(7))
    assert len(load_dataset(recipe).test) == 7
    assert first.images.mean() / 255 == pytest.approx(0.6, abs=0.1)
