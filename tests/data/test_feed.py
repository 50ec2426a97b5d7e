"""The feed that fits a data set; each gives images and labels in one form."""

import numpy as np

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.feed import make_feed
from resnet_fn.data.file_feed import FileFeed
from resnet_fn.data.memory_feed import MemoryFeed
from resnet_fn.data.sources.digits import load_digits
from resnet_fn.data.sources.load import load_dataset
from resnet_fn.data.sources.scan import check_files
from resnet_fn.runtime.workers import Workers


def test_memory_and_files_give_the_same_kind_of_batches(folder):
    digits = Recipe(image_size=8, batch_size=6)
    files = Recipe(dataset="imagefolder", image_size=24, batch_size=6)
    photographs = check_files(load_dataset(files, str(folder)), "error")
    for dataset, recipe, kind, channels in ((load_digits(), digits, MemoryFeed, 1), (photographs, files, FileFeed, 3)):
        feed = make_feed(dataset, recipe, Workers(1, 2))
        assert type(feed) is kind
        assert feed.updates_per_epoch == len(dataset.train) // 6
        images, labels = feed.batch(0)
        assert (images.shape, images.dtype) == ((3, channels, recipe.image_size, recipe.image_size), np.float32)
        assert (labels.dtype, labels.tolist()) == (np.int32, dataset.train.labels[feed.indices(0)].tolist())
        assert feed.reproducibility_key()["samples"] == len(dataset.train)
        feed.close()
        feed.close()
