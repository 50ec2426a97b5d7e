"""MindSpore's colour operations: a seed for each image, and RandAugment's noise."""

import dataclasses

import numpy as np
import pytest

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.colour import colour_each, policy_levels
from resnet_fn.data.sources.bundled import make_synthetic

PICTURES = make_synthetic(samples=64, classes=5, image_size=16)
RECIPE = Recipe(dataset="synthetic", image_size=16, policy="trivialaugment", color_jitter=0.3)


def test_colours_leave_the_global_data_seed_alone():
    from mindspore.dataset import config

    config.set_seed(77)
    colour_each(PICTURES.train.images[:3], RECIPE, np.array([5, 6, 7]))
    assert config.get_seed() == 77


def test_randaugments_noise_is_normal_around_its_strength():
    recipe = dataclasses.replace(RECIPE, policy="randaugment", policy_magnitude=18, color_jitter=0.0)
    assert policy_levels(recipe) == [18]
    levels = policy_levels(dataclasses.replace(recipe, policy_noise=1.5))
    assert np.mean(levels) == 18
    assert np.std(levels) == pytest.approx(1.5, abs=0.1)
    assert set(policy_levels(dataclasses.replace(recipe, policy_noise=30.0))) <= set(range(31))


def test_randaugments_noise_shows_and_repeats():
    seeds = np.arange(24)
    plain = dataclasses.replace(RECIPE, policy="randaugment", policy_magnitude=18, color_jitter=0.0)
    noisy = dataclasses.replace(plain, policy_noise=5.0)
    once, again = (colour_each(PICTURES.train.images[:24], noisy, seeds) for _ in range(2))
    assert once.tobytes() == again.tobytes()
    assert once.tobytes() != colour_each(PICTURES.train.images[:24], plain, seeds).tobytes()
