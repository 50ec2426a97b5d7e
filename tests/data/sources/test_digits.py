"""The digits are those of data/DIGITS.md, and so are their mean and deviation."""

import pytest

from resnet_fn.data.sources.bundled import load_digits

DIGITS = load_digits()


def test_digits_are_the_documented_ones():
    assert DIGITS.train.images.shape == (1437, 8, 8, 1)
    assert len(DIGITS.test) == 360
    pixels = DIGITS.train.images / 16
    assert DIGITS.input.mean[0] == pytest.approx(pixels.mean(), abs=1e-6)
    assert DIGITS.input.std[0] == pytest.approx(pixels.std(), abs=1e-6)
    assert set(DIGITS.train.labels) == set(DIGITS.test.labels) == set(range(10))
