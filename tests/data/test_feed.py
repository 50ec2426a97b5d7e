"""The feed that fits a data set; each gives images and labels in one form."""

import numpy as np
import pytest

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.dataset import check_batch
from resnet_fn.data.feed import MemoryFeed, make_feed
from resnet_fn.data.file_feed import FileFeed
from resnet_fn.data.images import as_fed
from resnet_fn.data.sources.bundled import load_digits
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


def test_bytes_are_what_the_other_feed_normalises(folder):
    recipe = Recipe(dataset="imagefolder", image_size=24, batch_size=4, flip=True)
    photographs = check_files(load_dataset(recipe, str(folder)), "error")
    plain, as_bytes = make_feed(photographs, recipe), make_feed(photographs, recipe, dtype="uint8")
    for update in range(7):
        images, labels = as_bytes.batch(update)
        check_batch(images, labels, 3, update, "uint8")
        expected, same = plain.batch(update)
        assert as_fed(images, photographs.input).tobytes() == expected.tobytes()
        assert labels.tolist() == same.tolist()
        with pytest.raises(ValueError, match=r"its images are uint8 \[4, 3, 24, 24\]; give float32 \[n, C, H, W\]"):
            check_batch(images, labels, 3, update)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mixup": 0.2}, "feed: 'uint8' gives images as they were decoded, and mixup, cutmix and erasing work on what"),
        ({"erasing": 0.2}, "mixup, cutmix and erasing work on what is normalised; give float32"),
        ({"dataset": "digits", "image_size": 8}, "and sets in memory are normalised; give float32"),
    ],
)
def test_bytes_are_refused_where_images_must_be_normalised_before(fields, message, folder):
    recipe = Recipe(**{"dataset": "imagefolder", "image_size": 24, "batch_size": 4, **fields})
    dataset = load_dataset(recipe, str(folder) if recipe.of_files else "")
    with pytest.raises(ValueError, match=message):
        make_feed(dataset, recipe, dtype="uint8")
