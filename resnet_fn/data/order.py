"""This module chooses the training samples of each update."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from resnet_fn.config.declaration import BALANCED
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.balance import balanced_order
from resnet_fn.runtime.workers import Workers

Batch = tuple[np.ndarray, np.ndarray]  # images and labels


class Streams:
    """Defines a fixed ID for each stream of random numbers.

    The ID is a part of the stream's seed.
    """

    # The comments list a seed's parts. Streams with the same ID have seeds of different lengths. A
    # changed ID would change all runs. IDs 6 and 7 are retired. Parity uses 20 and 21. Initial
    # weights use `set_seed(seed + 1)`.
    ORDER = 1  # seed, epoch, 1: the order of an epoch
    AFFINE = 2  # seed, epoch, 2: shift, rotation and zoom; whole epochs, in memory
    CROP = 3  # seed, epoch, 3: padded crop and flip; whole epochs, in memory
    ERASING = 4  # seed, epoch, 4
    MIXING = 5  # seed, update, 5: mixup and CutMix
    VIEW = 8  # seed, epoch, 8, repeat, number: a file's random resized crop and flip
    JITTER = 9  # seed, epoch, 9, repeat, number: brightness, contrast and saturation
    POLICY = 10  # seed, epoch, 10, repeat, number
    DROP_PATH = 9  # seed, update, 9
    DROPOUT = 10  # seed, update, 10
    BALANCED = 11  # seed, epoch, 11: the order of an epoch with balanced classes


def split_batch(batch_size: int, workers: int, accumulate: int) -> int:
    """Return the number of samples in a micro-batch: batch_size / (workers · accumulate)."""
    parts = workers * accumulate
    if batch_size % parts == 0:
        return batch_size // parts
    multiple = -(-batch_size // parts) * parts
    raise ValueError(
        f"batch_size: {batch_size} is not a multiple of {workers} workers x {accumulate} "
        f"micro-batches; use {multiple}, or another --accumulate"
    )


def epoch_order(seed: int, epoch: int, samples: int) -> np.ndarray:
    """Return the random order of an epoch, a permutation of 0..samples−1 in int32."""
    # An int32 array gets the same order as permutation(samples), and takes half the memory.
    return np.random.default_rng([seed, epoch, Streams.ORDER]).permutation(
        np.arange(samples, dtype=np.int32)
    )


# Each augmentation has the ID of a random stream, the count of numbers per sample, and whether a
# recipe uses them.
_DRAWS: dict[str, tuple[int, int, Callable[[Recipe], Any]]] = {
    "affine": (Streams.AFFINE, 4, lambda r: r.max_shift or r.max_rotation or r.max_zoom),
    "crop": (Streams.CROP, 3, lambda r: not r.of_files and (r.crop_padding or r.flip)),
    "erasing": (Streams.ERASING, 5, lambda r: r.erasing),
}


def draw_epoch(recipe: Recipe, epoch: int, samples: int) -> dict[str, np.ndarray]:
    """Draw random numbers 0..1, [repeats, samples, columns], for each augmentation that the recipe
    uses.
    """
    return {
        name: np.random.default_rng([recipe.seed, epoch, stream]).random(
            (recipe.repeats, samples, width)
        )
        for name, (stream, width, wanted) in _DRAWS.items()
        if wanted(recipe)
    }


class Plan:
    """Decides which training samples each update of a run gets. This is the base class of the
    feeds.

    An epoch has samples // batch_size updates and leaves out the remaining samples. With repeated
    augmentation (Hoffer et al., arXiv 1901.09335), an update has batch_size / repeats different
    samples, each of them `repeats` times.
    """

    def __init__(self, recipe: Recipe, labels: np.ndarray, workers: Workers) -> None:
        samples = len(labels)
        size = recipe.batch_size
        self.recipe = recipe
        self.labels = labels
        self.workers = workers
        self.updates_per_epoch = samples // size  # batches of one size let the step compile once
        self.share = share = size // workers.size  # number of samples of each worker in an update
        self.epoch = lru_cache(maxsize=1)(self._draw)  # thread-safe
        self._drawn = lru_cache(maxsize=1)(lambda epoch: draw_epoch(recipe, epoch, samples))
        if not self.updates_per_epoch:
            raise ValueError(
                f"batch_size: {size} is more than the {samples} training samples; give at most "
                f"{samples}"
            )
        if recipe.mixes and share % 2:
            even = 2 * workers.size * -(-size // (2 * workers.size))
            raise ValueError(
                f"batch_size: mixup and cutmix need an even number per worker, not {share}; give "
                f"{even}"
            )
        positions = workers.rank * share + np.arange(share)
        # of each sample, from 0, int64 [share]
        self.repeat_numbers = positions // (size // recipe.repeats)

    def indices(self, update: int) -> np.ndarray:
        """Return the sample numbers of this worker's share of an update, int64 [share]."""
        epoch, index = divmod(update, self.updates_per_epoch)
        return self.epoch(epoch)[0][index].astype(np.int64)

    def draws(self, update: int) -> dict[str, np.ndarray]:
        """Return the numbers of `draw_epoch` for this worker's share of an update, [share,
        columns].
        """
        epoch, index = divmod(update, self.updates_per_epoch)
        numbers = self.epoch(epoch)[1][index]
        drawn = self._drawn(epoch)
        return {name: values[self.repeat_numbers, numbers] for name, values in drawn.items()}

    def _draw(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Return this worker's sample numbers and numbers that select augmentations, both int32
        [updates, share].
        """
        recipe = self.recipe
        samples = len(self.labels)
        if recipe.sampling != BALANCED:
            order = self._share_of(epoch_order(recipe.seed, epoch, samples))
            return order, order
        order = balanced_order(
            np.random.default_rng([recipe.seed, epoch, Streams.BALANCED]), self.labels
        )
        return self._share_of(order), self._share_of(np.arange(samples, dtype=np.int32))

    def _share_of(self, order: np.ndarray) -> np.ndarray:
        different = self.recipe.batch_size // self.recipe.repeats
        start = self.workers.rank * self.share
        unique = order[: self.updates_per_epoch * different].reshape(
            self.updates_per_epoch, different
        )
        return np.tile(unique, self.recipe.repeats)[:, start : start + self.share].copy()
