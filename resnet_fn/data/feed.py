"""What feeds the updates: a pure function of (seed, update), whatever the workers and micro-batches.

A worker's share of an update, in order:

    order       which samples: a permutation drawn from (seed, epoch)                    order.py
    pixels      from memory, or decoded from files                                       memory_feed.py, file_feed.py
    crop, flip, colour, shift, rotation, zoom: drawn from (seed, epoch, sample)          augment.py; of files: photos/
    normalise   (pixels / full scale - mean) / std                                       normalise.py
    erase, mix  erased rectangles; mixup or CutMix, and its soft labels                  mix.py

`--image-pipeline fast` has crop, flip and colour of files drawn and computed by MindSpore's C++ threads instead, which
know nothing of (seed, epoch, sample): pipeline_feed.py.
"""

from typing import Any, Protocol

import numpy as np

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.dataset import DataSet, Split
from resnet_fn.data.file_feed import FileFeed
from resnet_fn.data.memory_feed import MemoryFeed
from resnet_fn.data.order import Batch
from resnet_fn.data.pipeline_feed import PipelineFeed
from resnet_fn.runtime.workers import Workers


class Feed(Protocol):
    """The training samples of every update.

    Attributes:
        updates_per_epoch: updates in a pass over the training set.
    """

    updates_per_epoch: int

    def indices(self, update: int) -> np.ndarray:
        """The samples of this worker's share of an update, in order: int64 [batch_size / workers]."""

    def batch(self, update: int) -> Batch:
        """This worker's share of an update: images float32 [n, C, H, W] (see `make_feed`) and their labels.

        Labels are int32 [n], or with mixup, CutMix or several classes an image float32 [n, classes], throughout.
        """

    def reproducibility_key(self) -> dict[str, Any]:
        """What a resumed run must have in common with this one to see the same bits, as JSON types."""

    def close(self) -> None:
        """End what feeds this: no thread is left. Further calls do nothing."""


def make_feed(dataset: DataSet, recipe: Recipe, workers: Workers = Workers(), dtype: str = "float32") -> Feed:
    """The training feed that fits a data set; its images are normalised, or with "uint8" as they were decoded.

    Raises:
        ValueError: see `Plan` and `check_feed`.
    """
    check_feed(recipe, dtype)
    if isinstance(dataset.train, Split):
        return MemoryFeed(dataset, recipe, workers)
    feed = FileFeed if recipe.image_pipeline == "exact" else PipelineFeed
    return feed(dataset, recipe, workers, as_bytes=dtype == "uint8")


def check_feed(recipe: Recipe, dtype: str) -> None:
    """Refuse "uint8" where images must be normalised before they reach the device.

    Raises:
        ValueError: says what normalises them.
    """
    needs = "sets in memory are" if not recipe.of_files else "mixup, cutmix and erasing work on what is"
    if dtype != "float32" and (not recipe.of_files or recipe.mixes or recipe.erasing):
        raise ValueError(f"feed: {dtype!r} gives images as they were decoded, and {needs} normalised; give float32")
