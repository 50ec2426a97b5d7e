"""A generated set: the same for the same arguments, learnable, of the size asked for."""

import numpy as np

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.load import load_dataset


def test_synthetic_is_the_same_every_time_and_of_the_size_asked_for():
    recipe = Recipe(dataset="synthetic", synthetic_samples=40, synthetic_classes=7, image_size=24)
    one, two = load_dataset(recipe), load_dataset(recipe)
    assert one.train.images.shape == (40, 24, 24, 3)
    assert len(one.test) == 7
    assert one.train.images.tobytes() == two.train.images.tobytes()
    assert set(one.train.labels.tolist()) == set(range(7))
    pixels = one.train.images / 255
    assert np.abs(pixels.mean() - 0.6) < 0.1
