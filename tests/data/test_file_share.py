"""What both feeds from files know of an update before anything is decoded."""

import numpy as np
from resnet_fn.data.file_share import FileShare

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.load import load_dataset
from resnet_fn.runtime.workers import Workers


def test_numbers_are_the_samples_own_or_with_balanced_sampling_those_of_its_place(folder):
    recipe = Recipe(dataset="imagefolder", image_size=24, batch_size=6, repeats=3)
    dataset = load_dataset(recipe, str(folder))
    share = FileShare(dataset, recipe, Workers(1, 2), as_bytes=True)
    repeats, numbers = zip(*share.numbers(1), strict=True)
    assert repeats == (1, 2, 2)  # places 3, 4 and 5 of 0 0 1 1 2 2
    assert list(numbers) == share.indices(1).tolist() == share.order(0)[1].tolist()
    assert share.buffers.take().shape == (3, 3, 24, 24)
    assert share.buffers.take().dtype == np.uint8
    balanced = Recipe(dataset="imagefolder", image_size=24, batch_size=6, sampling="balanced")
    share = FileShare(dataset, balanced, Workers(1, 2), as_bytes=False)
    assert share.numbers(2) == [(0, 15), (0, 16), (0, 17)]
