"""A training picture is torchvision's for the same box, flip and colours, and hangs on its numbers alone."""

import dataclasses
import io

import numpy as np
import pytest
from PIL import Image, ImageEnhance
from resnet_fn.data.photos.augment import draw_box, draw_view, training_pixels
from resnet_fn.data.photos.policies import choose

from resnet_fn.config.recipe import Recipe

RECIPE = Recipe(dataset="imagefolder", image_size=48, flip=True, seed=3)


def drawn(kind, number=5):
    return np.random.default_rng([3, 2, kind, 1, number])


def cropped_and_flipped(data, transforms):
    """By torchvision: the image, its box and flip from the same random numbers as ours."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    (left, top, right, bottom), mirrored = draw_view(RECIPE, image.size, drawn(8))
    sides = (top, left, bottom - top, right - left)
    image = transforms.functional.resized_crop(image, *sides, [48, 48], antialias=True)
    return transforms.functional.hflip(image) if mirrored else image


def test_crop_flip_and_colours_are_torchvisions_pixel_for_pixel(make_photograph, encode, torchvision):
    transforms, autoaugment = torchvision.transforms, torchvision.transforms.autoaugment
    functional, nearest = transforms.functional, transforms.InterpolationMode.NEAREST
    for number in range(12):
        data = encode(make_photograph(number, 130 + 17 * number, 100), quality=90)
        expected = cropped_and_flipped(data, transforms)
        assert training_pixels(data, RECIPE, 2, 1, 5).tobytes() == expected.tobytes()
        for policy in ("trivialaugment", "randaugment", "autoaugment"):
            recipe = dataclasses.replace(RECIPE, policy=policy)
            image = expected
            for name, magnitude in choose(recipe, 48, drawn(10)):
                image = autoaugment._apply_op(image, name, magnitude, nearest, None)
            assert training_pixels(data, recipe, 2, 1, 5).tobytes() == image.tobytes()
        rng, image = drawn(9), expected
        adjust = (functional.adjust_brightness, functional.adjust_contrast, functional.adjust_saturation)
        for place, factor in zip(rng.permutation(3), rng.uniform(0.6, 1.4, 3), strict=True):
            image = adjust[place](image, factor)
        jittered = training_pixels(data, dataclasses.replace(RECIPE, color_jitter=0.4), 2, 1, 5)
        assert jittered.tobytes() == image.tobytes()


def test_crop_and_flip_are_pillows(make_photograph, encode):
    """Without torchvision, which does just this."""
    data = encode(make_photograph(1, 150, 100))
    flips = 0
    for number in range(40):
        rng, image = drawn(8, number), Image.open(io.BytesIO(data))
        image = image.crop(draw_box(150, 100, 0.08, rng)).resize((48, 48), Image.Resampling.BILINEAR)
        mirrored = rng.random() < 0.5
        expected = np.asarray(image)[:, ::-1] if mirrored else np.asarray(image)
        flips += mirrored
        assert (training_pixels(data, RECIPE, 2, 1, number) == expected).all()
        upright = training_pixels(data, dataclasses.replace(RECIPE, flip=False), 2, 1, number)
        assert (upright == np.asarray(image)).all()
        coloured = dataclasses.replace(RECIPE, color_jitter=0.5)
        rng = drawn(9, number)
        image = Image.fromarray(np.ascontiguousarray(expected))
        for place, factor in zip(rng.permutation(3), rng.uniform(0.5, 1.5, 3), strict=True):
            image = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)[place](image).enhance(factor)
        assert (training_pixels(data, coloured, 2, 1, number) == np.asarray(image)).all()
    assert 10 < flips < 30


def test_boxes_are_whole_inside_and_of_the_areas_and_ratios_asked_for():
    rng = np.random.default_rng(0)
    boxes = np.array([draw_box(500, 375, 0.3, rng) for _ in range(4000)])
    left, top, right, bottom = boxes.T
    assert left.min() == 0 <= top.min()
    assert right.max() <= 500
    assert bottom.max() <= 375
    wide, tall = right - left, bottom - top
    area, ratio = wide * tall / (500 * 375), wide / tall
    assert 0.29 < area.min() < 0.31
    assert area.max() < 1.01
    assert 0.74 < ratio.min() < 0.76
    assert 1.32 < ratio.max() < 1.35
    assert np.mean(np.log(ratio[area < 0.5])) == pytest.approx(0, abs=0.02)  # log-uniform where all fit
    centred = (left + right)[area < 0.5].mean() / 1000, (top + bottom)[area < 0.5].mean() / 750
    assert centred == pytest.approx((0.5, 0.5), abs=0.02)


@pytest.mark.parametrize(
    ("size", "box"),
    [((1000, 10), (493, 0, 506, 10)), ((10, 1000), (0, 493, 10, 506)), ((1, 1), (0, 0, 1, 1)), ((1, 9), (0, 4, 1, 5))],
)
def test_where_no_box_fits_it_is_the_middle(size, box):
    assert draw_box(*size, 1.0, np.random.default_rng(0)) == box


def test_what_a_recipe_adds_does_not_move_the_rest(make_photograph, encode):
    """Crop, jitter and policy have streams of their own; another epoch, repeat, sample or seed has other numbers."""
    data = encode(make_photograph(4, 150, 100))
    plain = training_pixels(data, RECIPE, 2, 1, 5)
    light = training_pixels(data, dataclasses.replace(RECIPE, color_jitter=1e-9), 2, 1, 5)
    assert (plain == light).all()
    others = [(RECIPE, 3, 1, 5), (RECIPE, 2, 0, 5), (RECIPE, 2, 1, 6), (dataclasses.replace(RECIPE, seed=4), 2, 1, 5)]
    assert len({plain.tobytes(), *(training_pixels(data, *other).tobytes() for other in others)}) == 5
