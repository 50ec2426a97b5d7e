"""Resizing, normalising and affine changes, by their formulas."""

import dataclasses

import numpy as np

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.augment import crop_and_flip
from resnet_fn.data.images import normalise, prepare, random_affine
from resnet_fn.data.order import draw_epoch
from resnet_fn.data.sources.bundled import load_digits
from resnet_fn.data.sources.files import color_spec

DIGITS = load_digits()


def test_prepare_normalises_and_resizes():
    spec = dataclasses.replace(DIGITS.input, mean=(0.5,), std=(0.25,))
    flat = prepare(np.full((1, 8, 8, 1), 16, np.uint8), 16, spec)
    np.testing.assert_allclose(flat, 2.0, rtol=1e-6)
    ramp = np.arange(4, dtype=np.uint8).reshape(1, 1, 4, 1).repeat(4, axis=1)
    doubled = prepare(ramp, 8, dataclasses.replace(spec, full_scale=1.0, mean=(0.0,), std=(1.0,)))[
        0, 0, 3
    ]
    # half-pixel centres: target i lies at (i + 1/2) / 2 − 1/2, clamped at the border
    np.testing.assert_allclose(doubled, [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3], atol=1e-6)


def test_normalisation_is_torchvisions_bit_for_bit(torchvision):
    functional = torchvision.transforms.functional
    image = np.random.default_rng(0).integers(0, 256, (24, 24, 3), dtype=np.uint8)
    spec = color_spec("", ())
    ours = normalise(image.transpose(2, 0, 1), spec, np.empty((3, 24, 24), np.float32))
    theirs = functional.normalize(functional.to_tensor(image), spec.mean, spec.std)
    assert ours.tobytes() == theirs.numpy().tobytes()


def test_crop_cuts_the_window_that_the_draws_name():
    images = np.arange(2 * 5 * 4 * 1, dtype=np.uint8).reshape(2, 5, 4, 1)
    draws = np.array([[0.34, 0.66, 0.9], [0.33, 0.67, 0.1]])
    cut = crop_and_flip(images, draws, padding=1, flip=True)
    assert cut[0].tolist() == images[0].tolist()  # the middle third of the draws, not mirrored
    # one up, two right of the padded corner, then mirrored
    expected = np.zeros((5, 4, 1), np.uint8)
    expected[1:, :3] = images[1][:4, 1:]
    assert cut[1].tolist() == expected[:, ::-1].tolist()
    turned = crop_and_flip(images, np.array([[0, 0, 0.49], [0, 0, 0.5]]), 0, True)
    assert (turned[0] == images[0][:, ::-1]).all()
    assert (turned[1] == images[1]).all()


def test_affine_shifts_whole_pixels_and_fills_with_black():
    image = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    fill = np.float32([-9])
    down = random_affine(image, np.array([[-1.0, 0, 0, 0]]), 1, 0, 0, fill)[0, 0]
    np.testing.assert_array_equal(down[0], [-9] * 4)
    np.testing.assert_array_equal(down[1:], image[0, 0, :3])
    left = random_affine(image, np.array([[0, 0.99, 0, 0]]), 1, 0, 0, fill)[0, 0]
    np.testing.assert_array_equal(left[:, :3], image[0, 0, :, 1:])


def test_affine_turns_by_90_degrees_or_changes_nothing():
    image = np.random.default_rng(0).normal(size=(1, 2, 5, 5)).astype(np.float32)
    turned = random_affine(image, np.array([[0, 0, 1.0, 0]]), 0, 90, 0, np.float32([0, 0]))
    assert any(np.allclose(turned, np.rot90(image, k, axes=(2, 3)), atol=1e-5) for k in (1, 3))
    same = random_affine(image, np.zeros((1, 4)), 2, 20, 0.2, np.float32([0, 0]))
    np.testing.assert_allclose(same, image, atol=1e-6)


def test_an_epochs_numbers_are_those_of_its_streams():
    """What a recipe does not use is not drawn, and what it uses does not move by it."""
    recipe = Recipe(dataset="synthetic", seed=4, flip=True, erasing=0.5, repeats=2, batch_size=8)
    drawn = draw_epoch(recipe, 3, 10)
    assert list(drawn) == ["crop", "erasing"]
    np.testing.assert_array_equal(
        drawn["crop"], np.random.default_rng([4, 3, 3]).random((2, 10, 3))
    )
    alone = draw_epoch(recipe.changed(flip=False), 3, 10)
    np.testing.assert_equal(alone, {"erasing": drawn["erasing"]})
