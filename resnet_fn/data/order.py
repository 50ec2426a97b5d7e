"""This module chooses the samples of each update; they depend only on the recipe, its seed and the update's number."""

from functools import lru_cache

import numpy as np

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.balance import BALANCED, balanced_order
from resnet_fn.runtime.workers import Workers

Batch = tuple[np.ndarray, np.ndarray]  # images and labels


class Streams:
    """A fixed ID for each random stream; it is part of the seed of that stream's NumPy generator.

    The comments list a seed's parts. An ID never changes, because all runs would. Streams of one ID have seeds of other
    lengths. Parity's batches use 20 and 21; 6 and 7 are retired. Initial weights use MindSpore's `set_seed(seed + 1)`.
    """

    ORDER = 1  # seed, epoch, 1: an epoch's order
    AFFINE = 2  # seed, epoch, 2: shift, rotation and zoom; whole epochs, in memory
    CROP = 3  # seed, epoch, 3: padded crop and flip; whole epochs, in memory
    ERASING = 4  # seed, epoch, 4
    MIXING = 5  # seed, update, 5: mixup and CutMix
    VALIDATION = 8  # seed, 8: the files that are split off for validation
    VIEW = 8  # seed, epoch, 8, repeat, number: a file's random resized crop and flip
    JITTER = 9  # seed, epoch, 9, repeat, number: brightness, contrast and saturation
    POLICY = 10  # seed, epoch, 10, repeat, number
    DROP_PATH = 9  # seed, update, 9
    DROPOUT = 10  # seed, update, 10
    BALANCED = 11  # seed, epoch, 11: the order of an epoch that sees every class equally often


def split_batch(batch_size: int, workers: int, accumulate: int) -> int:
    """Return the samples of a micro-batch, batch_size / (workers · accumulate); a ValueError if that is not whole."""
    parts = workers * accumulate
    if batch_size % parts == 0:
        return batch_size // parts
    wrong = f"batch_size: {batch_size} does not divide into {workers} workers x {accumulate} micro-batches"
    raise ValueError(f"{wrong}; use {-(-batch_size // parts) * parts}, or another --accumulate")


def epoch_order(seed: int, epoch: int, samples: int) -> np.ndarray:
    """Return an epoch's order of the samples, a permutation of 0..samples−1, int32, which depends on seed and epoch."""
    # An int32 array is shuffled to the same order as permutation(samples), and takes half the memory.
    return np.random.default_rng([seed, epoch, Streams.ORDER]).permutation(np.arange(samples, dtype=np.int32))


class Plan:
    """A plan assigns training samples to a run's updates; it is the base class of the feeds.

    An epoch has samples // batch_size updates and leaves out the rest: all batches have one size, so that the step
    compiles once. With repeated augmentation (Hoffer et al., arXiv 1901.09335) an update has batch_size / repeats
    different samples, each `repeats` times; an epoch has as many updates as without. `share` is the number of this
    worker's samples of an update. A ValueError for a set smaller than a batch, or an odd `share` to mix.
    """

    def __init__(self, recipe: Recipe, labels: np.ndarray, workers: Workers) -> None:
        samples = len(labels)
        self.recipe, self.labels, self.workers = recipe, labels, workers
        self.updates_per_epoch = samples // recipe.batch_size
        self.share = recipe.batch_size // workers.size
        self.epoch = lru_cache(maxsize=1)(self._draw)  # thread-safe
        if not self.updates_per_epoch:
            wrong = f"batch_size: {recipe.batch_size} is larger than the training set of {samples}"
            raise ValueError(f"{wrong}; give at most {samples}")
        if recipe.mixes and self.share % 2:
            raise ValueError(
                f"batch_size: mixup and cutmix pair neighbours, and a worker's share of {self.share} is odd; "
                f"give {2 * workers.size * -(-recipe.batch_size // (2 * workers.size))}"
            )

    def indices(self, update: int) -> np.ndarray:
        """Return the numbers of this worker's samples of an update, in order: int64 [share]."""
        epoch, place = divmod(update, self.updates_per_epoch)
        return self.epoch(epoch)[0][place].astype(np.int64)

    def _draw(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Return this worker's samples of an epoch, and the rows of their random numbers, int32 [updates, share]."""
        recipe, samples = self.recipe, len(self.labels)
        if recipe.sampling != BALANCED:
            order = self._share_of(epoch_order(recipe.seed, epoch, samples))
            return order, order
        order = balanced_order(np.random.default_rng([recipe.seed, epoch, Streams.BALANCED]), self.labels)
        return self._share_of(order), self._share_of(np.arange(samples, dtype=np.int32))

    def _share_of(self, order: np.ndarray) -> np.ndarray:
        """Return this worker's part of an epoch's order, a copy: [updates_per_epoch, share]."""
        different, start = self.recipe.batch_size // self.recipe.repeats, self.workers.rank * self.share
        unique = order[: self.updates_per_epoch * different].reshape(self.updates_per_epoch, different)
        return np.tile(unique, self.recipe.repeats)[:, start : start + self.share].copy()

    def repeat_numbers(self) -> np.ndarray:
        """Return for each sample of this worker's share which repeat it is, from 0: int64 [share]."""
        places = self.workers.rank * self.share + np.arange(self.share)
        return places // (self.recipe.batch_size // self.recipe.repeats)
