"""A feed makes training batches, whose pixels do not depend on the number of workers, threads or
micro-batches.

order.py chooses the samples, and file_feed.py decodes image files and images in shards. Crop, flip
and colour (augment.py, preprocess.py) come before normalisation (images.py). Shift, rotation and
zoom (images.py) are only for data sets in memory, and come after normalisation. Erasing and mixing
(mix.py) come last.
"""

from typing import Any, cast

import numpy as np

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.augment import colour_arrays, crop_and_flip
from resnet_fn.data.dataset import Arrays, DataSet, Split
from resnet_fn.data.file_feed import FileFeed
from resnet_fn.data.images import prepare, random_affine
from resnet_fn.data.mix import erase_and_mix
from resnet_fn.data.order import Batch, Plan
from resnet_fn.runtime.workers import Workers


def make_feed(
    dataset: DataSet, recipe: Recipe, workers: Workers = Workers(), dtype: str = "float32"
) -> "Feed":
    """Make a feed, whose method `batch(update)` returns this worker's images and labels for an
    update.

    Args:
        dataset: the data set to train on.
        recipe: settings such as batch size, augmentation and seed.
        workers: this worker's rank and the number of workers.
        dtype: "float32" for normalised images, or "uint8" for images without normalisation.

    Raises:
        ValueError: if the recipe cannot use `dtype`, or if the batch size does not fit the data set
            and the workers.
    """
    check_feed(recipe, dtype)
    if isinstance(dataset.train, Split):
        return MemoryFeed(dataset, recipe, workers)
    return FileFeed(dataset, recipe, workers, as_bytes=dtype == "uint8")


def check_feed(recipe: Recipe, dtype: str) -> None:
    """Raise ValueError if `dtype` is "uint8" and the recipe needs normalised images."""
    users = "data sets in memory" if not recipe.of_files else "mixup, cutmix and erasing"
    if dtype != "float32" and (not recipe.of_files or recipe.mixes or recipe.erasing):
        raise ValueError(
            f"feed: {dtype!r} images are not normalised, but {users} need normalised images; give "
            "float32"
        )


class MemoryFeed(Plan):
    """Makes batches from samples in memory.

    `batch` and `indices` may run in two threads at the same time.
    """

    _MOST_PREPARED = 64 << 20  # largest number of bytes of normalised images that are kept

    def __init__(self, dataset: DataSet, recipe: Recipe, workers: Workers = Workers()) -> None:
        super().__init__(recipe, dataset.train.labels, workers)
        self._input = dataset.input
        self._split = cast(Split, dataset.train)
        changes_bytes = recipe.crop_padding or recipe.flip or recipe.colours
        size = len(dataset.train) * dataset.input.channels * recipe.image_size**2 * 4
        self._prepared: np.ndarray | None = None
        if isinstance(self._split, Arrays):
            self._prepared = self._split.images  # inputs of `fit` stay unchanged
        elif size <= self._MOST_PREPARED and not changes_bytes:
            self._prepared = prepare(self._split.images, recipe.image_size, dataset.input)
        # A resumed run compares these JSON values with the values in the checkpoint.
        arrays = {"arrays": dataset.digest} if dataset.digest else {}
        self.reproducibility_key: dict[str, Any] = {"samples": len(self._split), **arrays}

    def batch(self, update: int) -> Batch:
        """Return this worker's share of the batch of an update.

        Args:
            update: number of the update, counted from 0.

        Returns:
            Images are float32 [n, C, H, W], and labels are int32 [n]. With mixup, CutMix or several
            classes per image, labels are float32 [n, classes]. Samples of `Arrays` keep their
            shapes and dtypes.
        """
        recipe = self.recipe
        spec = self._input
        epoch, index = divmod(update, self.updates_per_epoch)
        samples, numbers = (share[index] for share in self.epoch(epoch))
        draws = self.draws(update)
        if self._prepared is not None:
            images = self._prepared[samples]
        else:
            pixels = self._split.images[samples]
            if "crop" in draws:
                pixels = crop_and_flip(pixels, draws["crop"], recipe.crop_padding, recipe.flip)
            if recipe.colours:
                pixels = colour_arrays(pixels, recipe, epoch, self.repeat_numbers, numbers)
            images = prepare(pixels, recipe.image_size, spec)
        if "affine" in draws:
            black = -spec.moments[0] / spec.moments[1]
            limits = recipe.max_shift, recipe.max_rotation, recipe.max_zoom
            images = random_affine(images, 2 * draws["affine"] - 1, *limits, black)
        batch = images, self.labels[samples]
        return erase_and_mix(recipe, batch, len(spec.classes), update, epoch, draws.get("erasing"))

    def close(self) -> None:
        """Do nothing, because this feed has no threads."""


Feed = MemoryFeed | FileFeed
