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
    assert DIGITS.input.mean[0] == pytest.approx(pixels.mean(), abs=1e-6)
    assert DIGITS.input.std[0] == pytest.approx(pixels.std(), abs=1e-6)
    assert set(DIGITS.train.labels) == set(DIGITS.test.labels) == set(range(10))


def test_synthetic_data_are_reproducible():
    recipe = Recipe(dataset="synthetic", synthetic_samples=40, synthetic_classes=7, image_size=24)
    one = load_dataset(recipe)
    two = load_dataset(recipe)
    assert one.train.images.shape == (40, 24, 24, 3)
    assert len(one.test) == 7
    assert one.train.images.tobytes() == two.train.images.tobytes()
    assert set(one.train.labels.tolist()) == set(range(7))
    pixels = one.train.images / 255
    assert np.abs(pixels.mean() - 0.6) < 0.1
