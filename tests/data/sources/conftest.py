"""Fixtures that pack a folder and compare the batches of two data sets."""

import pytest

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.load import load_dataset
from resnet_fn.pack import main


@pytest.fixture
def pack():
    """pack(folder, out, *flags) packs an image folder into 4 shards a split and opens it."""

    def run(folder, out="packed ü", *more):
        assert main([str(folder), out, "--shards", "4", "--no-progress", *more]) == 0
        return load_dataset(Recipe(dataset="mindrecord", image_size=24), out)

    return run


@pytest.fixture
def same_batches():
    """same_batches(one, two, updates): two feeds give the same images and labels, to the bit."""

    def compare(one, two, updates):
        for update in updates:
            (images, labels), (again, same) = one.batch(update), two.batch(update)
            assert images.tobytes() == again.tobytes()
            assert labels.tolist() == same.tolist()
        one.close()
        two.close()

    return compare
