"""A feed makes training batches, which depend only on (seed, update), not on workers, threads or micro-batches.

A worker's part of an update is made in this order:

    order       the samples, in an order drawn from (seed, epoch)                              order.py
    pixels      from memory in this module, or decoded from files                              file_feed.py
    vary        crop, flip, colour, drawn from (seed, epoch, sample)              augment.py, preprocess.py
    normalise   (pixels / full scale - mean) / std                                             images.py
    shift, rotate, zoom (in memory)                                                            images.py
    erase, mix  erased rectangles; mixup or CutMix, and its soft labels                        mix.py
"""

from functools import lru_cache
from typing import Any, cast

import numpy as np

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.augment import colour_arrays, crop_and_flip
from resnet_fn.data.dataset import Arrays, DataSet, Split
from resnet_fn.data.file_feed import FileFeed
from resnet_fn.data.images import draw_epoch, prepare, random_affine
from resnet_fn.data.mix import erase_and_mix
from resnet_fn.data.order import Batch, Plan
from resnet_fn.runtime.workers import Workers


def make_feed(dataset: DataSet, recipe: Recipe, workers: Workers = Workers(), dtype: str = "float32") -> "Feed":
    """Make a feed of images in `dtype`: "float32", normalised, or "uint8", not. Errors: see `check_feed` and `Plan`."""
    check_feed(recipe, dtype)
    if isinstance(dataset.train, Split):
        return MemoryFeed(dataset, recipe, workers)
    return FileFeed(dataset, recipe, workers, as_bytes=dtype == "uint8")


def check_feed(recipe: Recipe, dtype: str) -> None:
    """Raise a ValueError if `dtype` is "uint8" and the recipe needs images that are normalised on the host."""
    needs = "sets in memory are" if not recipe.of_files else "mixup, cutmix and erasing work on images that are"
    if dtype != "float32" and (not recipe.of_files or recipe.mixes or recipe.erasing):
        raise ValueError(f"feed: {dtype!r} gives images as they were decoded, and {needs} normalised; give float32")


class MemoryFeed(Plan):
    """This feed makes batches from samples in memory; `batch` and `indices` may run in two threads at a time."""

    _MOST_PREPARED = 64 << 20  # bytes of normalised images that are kept, if nothing varies their pixels before

    def __init__(self, dataset: DataSet, recipe: Recipe, workers: Workers = Workers()) -> None:
        super().__init__(recipe, dataset.train.labels, workers)
        self._input, self._split = dataset.input, cast(Split, dataset.train)
        self._repeats = self.repeat_numbers()
        self._draws = lru_cache(maxsize=1)(lambda epoch: draw_epoch(recipe, epoch, len(dataset.train)))
        changes_bytes = recipe.crop_padding or recipe.flip or recipe.colours
        size = len(dataset.train) * dataset.input.channels * recipe.image_size**2 * 4
        self._prepared: np.ndarray | None = None
        if isinstance(self._split, Arrays):
            self._prepared = self._split.images  # as they are
        elif size <= self._MOST_PREPARED and not changes_bytes:
            self._prepared = prepare(self._split.images, recipe.image_size, dataset.input)
        # Values (JSON types) that a resumed run compares with the checkpoint's: other ones give other batches.
        self.reproducibility_key: dict[str, Any] = {"samples": len(self._split)}
        if dataset.digest:
            self.reproducibility_key["arrays"] = dataset.digest

    def batch(self, update: int) -> Batch:
        """Return this worker's share of an update: images, float32 [n, C, H, W] (`FileFeed`: or uint8), and labels.

        Labels are int32 [n], or, with mixup, CutMix or several classes an image, float32 [n, classes]. Arrays passed to
        `resnet_fn.fit` are not changed. A `BadSampleError` names a file that cannot be read or decoded.
        """
        recipe, spec = self.recipe, self._input
        epoch, place = divmod(update, self.updates_per_epoch)
        samples, numbers = (share[place] for share in self.epoch(epoch))
        draws = {name: drawn[self._repeats, numbers] for name, drawn in self._draws(epoch).items()}
        if self._prepared is not None:
            images = self._prepared[samples]
        else:
            pixels = self._split.images[samples]
            if "crop" in draws:
                pixels = crop_and_flip(pixels, draws["crop"], recipe.crop_padding, recipe.flip)
            if recipe.colours:
                pixels = colour_arrays(pixels, recipe, epoch, self._repeats, numbers)
            images = prepare(pixels, recipe.image_size, spec)
        if "affine" in draws:
            black = -spec.moments[0] / spec.moments[1]
            limits = recipe.max_shift, recipe.max_rotation, recipe.max_zoom
            images = random_affine(images, 2 * draws["affine"] - 1, *limits, black)
        batch = images, self.labels[samples]
        return erase_and_mix(recipe, batch, len(spec.classes), update, epoch, draws.get("erasing"))

    def close(self) -> None:
        """Do nothing: this feed, unlike `FileFeed`, has no threads to end."""


Feed = MemoryFeed | FileFeed
