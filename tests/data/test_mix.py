"""Mixup and CutMix: labels follow the pixels."""

import numpy as np

from resnet_fn.data.mix import Mixing, draw_mixing, erase, mix


def test_mixup_is_the_papers_equation():
    images = np.random.default_rng(0).normal(size=(4, 3, 6, 6)).astype(np.float32)
    mixed, soft = mix(images, np.array([0, 1, 2, 2], np.int32), 3, Mixing(0.75))
    expected = 0.75 * images + 0.25 * images[[1, 0, 3, 2]]
    np.testing.assert_allclose(mixed, expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(soft, [[0.75, 0.25, 0], [0.25, 0.75, 0], [0, 0, 1], [0, 0, 1]])
    assert mixed.dtype == soft.dtype == np.float32
    several = np.float32([[1, 1, 0], [0, 1, 0]])
    for mixing, expected in ((Mixing(0.75), [[0.75, 1, 0], [0.25, 1, 0]]), (None, several)):
        np.testing.assert_array_equal(mix(images[:2], several, 3, mixing)[1], expected)


def test_cutmix_labels_equal_the_boxs_real_area():
    for seed in range(200):
        mixing = draw_mixing(np.random.default_rng(seed), 0.0, 1.0, 0.5, 12, 10)
        top, bottom, left, right = mixing.box
        images = np.float32([[np.zeros((12, 10))], [np.ones((12, 10))]])
        mixed, soft = mix(images, np.array([0, 1], np.int32), 2, mixing)
        np.testing.assert_allclose(mixed[0].mean(), soft[0, 1], atol=1e-6)
        assert mixed[0, 0, top:bottom, left:right].sum() == mixed[0].sum()
        np.testing.assert_allclose(soft.sum(1), 1, rtol=1e-6)


def test_cutmixs_share_and_mixups_weights_have_their_laws():
    rng = np.random.default_rng(0)
    drawn = [draw_mixing(rng, 0.2, 1.0, 0.25, 8, 8) for _ in range(2000)]
    weights = np.array([mixing.weight for mixing in drawn if mixing.box is None])
    assert abs(len(weights) / 2000 - 0.75) < 0.03
    assert abs(weights.mean() - 0.5) < 0.03
    assert abs(weights.var() - 1 / (4 * (2 * 0.2 + 1))) < 0.015  # variance of Beta(0.2, 0.2)
    assert not any(draw_mixing(rng, 0.2, 0.0, 1.0, 8, 8).box for _ in range(20))


def test_erasing_covers_its_share_of_some_images():
    images = np.ones((4000, 1, 32, 32), np.float32)
    draws = np.random.default_rng(0).random((4000, 5))
    erased = erase(images, draws, 0.25)
    chosen = draws[:, 0] < 0.25
    assert erased[~chosen].min() == 1
    gone = 1 - erased[chosen].mean((1, 2, 3))
    assert 0.01 < gone.min() < gone.max() < 0.36
    # the middle of 2 % and 33 %, less what does not fit
    assert abs(gone.mean() - 0.175) < 0.015
    assert images.min() == 1  # the input is untouched
    assert erase(images, draws, 0.0) is images
