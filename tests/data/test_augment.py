"""Crop, flip, jitter and policies give the formulas' pixels."""

from collections import Counter

import numpy as np
import pytest
from PIL import Image

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.augment import (
    CHOICE,
    OPERATIONS,
    PAIRS,
    choose,
    colour,
    colour_arrays,
    magnitude,
)

# A magnitude that does something, and one of the other sign.
SIGNED = {
    **dict.fromkeys(("ShearX", "ShearY"), (0.3, 0.99, 0.033)),
    **dict.fromkeys(("TranslateX", "TranslateY"), (1.0, 14.5, 32.0)),
    "Rotate": (1.0, 30.0, 90.0, 135.0),
    **dict.fromkeys(("Brightness", "Color", "Contrast", "Sharpness"), (0.03, 0.9)),
}
OTHERS = {"Posterize": (8.0, 4.0, 2.0), "Solarize": (255.0, 127.5, 0.0)}


def magnitudes(name):
    return [sign * value for value in SIGNED.get(name, ()) for sign in (1, -1)] or OTHERS.get(
        name, (0.0,)
    )


@pytest.mark.parametrize("name", OPERATIONS)
def test_pixels_of_each_operation_are_torchvisions(name, make_photograph, torchvision):
    reference = torchvision.transforms.autoaugment
    nearest = torchvision.transforms.InterpolationMode.NEAREST
    for picture in (
        make_photograph(1, 64, 64),
        make_photograph(2, 53, 53),
        Image.new("RGB", (9, 9), (7, 7, 7)),
    ):
        for strength in magnitudes(name):
            theirs = reference._apply_op(picture, name, strength, nearest, None)
            assert OPERATIONS[name](picture, strength).tobytes() == theirs.tobytes(), strength


def picks(count, dataset="imagefolder", **fields):
    recipe = Recipe(dataset=dataset, **fields)
    return [choose(recipe, 224, np.random.default_rng(seed)) for seed in range(count)]


def rotations(chosen):
    return [value for operations in chosen for name, value in operations if name == "Rotate"]


@pytest.mark.parametrize("size", [24, 224, 299])
def test_magnitudes_are_torchvisions(size, torchvision):
    module = torchvision.transforms.autoaugment
    spaces = {
        "trivialaugment": module.TrivialAugmentWide()._augmentation_space(31),
        "randaugment": module.RandAugment()._augmentation_space(31, (size, size)),
        "autoaugment": module.AutoAugment()._augmentation_space(10, (size, size)),
    }
    for policy, space in spaces.items():
        for name, (values, signed) in space.items():
            expected = np.float32(values.numpy()).reshape(-1)  # 0: without a magnitude
            ours = np.float32([magnitude(name, k, size, policy) for k in range(len(expected))])
            np.testing.assert_array_max_ulp(ours, expected, 1)  # torch's depend on the CPU
            np.testing.assert_array_equal(ours.astype(int), expected.astype(int))
            assert signed == (name[:5] in ("Shear", "Trans") or name in ("Rotate", *CHOICE[6:10]))
        assert set(CHOICE) == {"Identity", *space} - {"Invert"}


def test_autoaugment_has_torchvisions_pairs_for_both_policies(torchvision):
    module = torchvision.transforms.autoaugment
    for of_files, kind in ((True, "IMAGENET"), (False, "CIFAR10")):
        theirs = module.AutoAugment()._get_policies(module.AutoAugmentPolicy[kind])
        for ours, pair in zip(PAIRS[of_files], theirs, strict=True):
            for (name, share, *level), expected in zip(ours, pair, strict=True):
                assert (name, float(share), int(level[0]) if level else None) == expected


def test_trivialaugment_draws_one_operation_and_strength_uniformly():
    chosen = picks(5600, policy="trivialaugment")
    assert picks(5) == [[]] * 5
    assert picks(50, policy="trivialaugment") == chosen[:50]
    assert {len(operations) for operations in chosen} == {1}
    counts = Counter(operations[0][0] for operations in chosen)
    assert set(counts) == set(CHOICE)
    # 400 each, standard deviation 19
    assert 320 < min(counts.values()) <= max(counts.values()) < 480
    degrees = rotations(chosen)
    assert abs(np.mean(degrees)) < 12  # both ways
    assert np.max(np.abs(degrees)) == 135
    assert len(set(np.abs(degrees))) == 31


def test_randaugment_draws_operations_of_the_given_noisy_strength():
    chosen = picks(500, policy="randaugment", policy_ops=3, policy_magnitude=12)
    assert {len(operations) for operations in chosen} == {3}
    assert {*map(abs, rotations(chosen))} == {12.0}
    noisy = picks(3000, policy="randaugment", policy_magnitude=12, policy_noise=1.5)
    levels = np.abs(rotations(noisy))  # degrees = levels
    assert np.mean(levels) == pytest.approx(12, abs=0.3)
    assert np.std(levels) == pytest.approx(1.5, abs=0.25)
    widest = picks(300, policy="randaugment", policy_magnitude=30, policy_noise=30.0)
    assert np.max(np.abs(rotations(widest))) <= 30


def test_autoaugment_applies_operations_with_its_pairs_probabilities():
    chosen = picks(5000, policy="autoaugment")
    expected = sum(float(share) for pair in PAIRS[True] for _, share, *_ in pair) / 25
    assert np.mean(list(map(len, chosen))) == pytest.approx(expected, abs=0.04)


def test_arrays_and_photographs_get_the_same_colours(make_photograph):
    pictures = [make_photograph(number, 32, 32) for number in range(6)]
    arrays = np.stack(pictures)
    recipe = Recipe(
        dataset="synthetic", image_size=32, seed=5, policy="randaugment", color_jitter=0.3
    )
    coloured = colour_arrays(arrays, recipe, 2, [0, 0, 0, 1, 1, 1], range(6))
    for number, picture in enumerate(pictures):
        expected = colour(picture, recipe, 2, number // 3, number)
        assert coloured[number].tobytes() == expected.tobytes()
    assert coloured.tobytes() != arrays.tobytes()


def test_small_images_take_cifars_own_autoaugment():
    small, large = (
        {name for pair in picks(300, dataset, policy="autoaugment") for name, _ in pair}
        for dataset in ("synthetic", "imagefolder")
    )
    assert "TranslateY" in small - large
