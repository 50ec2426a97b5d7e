"""An image folder as records."""

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
