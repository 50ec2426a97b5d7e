"""Which samples an update sees: a pure function of (seed, update), whatever the workers and micro-batches."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from resnet_fn.config import Recipe
from resnet_fn.data.augment import prepare, random_affine
from resnet_fn.data.sources import DataSet, Split

# Names for the streams of random numbers that hang on one seed; never renumber them.
_ORDER, _AUGMENT = 1, 2


def epoch_order(seed: int, epoch: int, samples: int) -> np.ndarray:
    """The order in which an epoch visits the samples: a permutation of 0..samples−1, from (seed, epoch) alone."""
    return np.random.default_rng([seed, epoch, _ORDER]).permutation(samples)


@dataclasses.dataclass(frozen=True)
class Shard:
    """This worker's place: rank 0..workers−1."""

    rank: int = 0
    workers: int = 1


class TrainData:
    """The training samples of every update.

    An epoch has samples // batch_size updates: what is left over waits for the next epoch's order (every batch is
    whole, so that the step compiles once).

    Raises:
        ValueError: the batch is larger than the training set.
    """

    def __init__(self, dataset: DataSet, recipe: Recipe, shard: Shard = Shard()) -> None:
        self._recipe, self._shard = recipe, shard
        self._labels = dataset.train.labels
        self._mean, self._std = np.array(dataset.mean, np.float32), np.array(dataset.std, np.float32)
        self._images = prepare(dataset.train.images, recipe.image_size, dataset.full_scale, self._mean, self._std)
        self.updates_per_epoch = len(self._labels) // recipe.batch_size
        self._epoch = -1
        if not self.updates_per_epoch:
            raise ValueError(
                f"batch_size: {recipe.batch_size} is larger than the training set of {len(self._labels)}; "
                f"give at most {len(self._labels)}"
            )

    def indices(self, update: int) -> np.ndarray:
        """The samples of this worker's share of an update, in order: int64 [batch_size / workers]."""
        self._draw_epoch(update // self.updates_per_epoch)
        size = self._recipe.batch_size
        start = update % self.updates_per_epoch * size
        share = size // self._shard.workers
        start += self._shard.rank * share
        return self._order[start : start + share]

    def batch(self, update: int) -> tuple[np.ndarray, np.ndarray]:
        """This worker's share of an update: images float32 [n, C, H, W], labels int32 [n]."""
        indices = self.indices(update)
        recipe = self._recipe
        images = random_affine(
            self._images[indices],
            self._draws[indices],
            recipe.max_shift,
            recipe.max_rotation,
            recipe.max_zoom,
            -self._mean / self._std,
        )
        return images, self._labels[indices]

    def _draw_epoch(self, epoch: int) -> None:
        if epoch != self._epoch:
            samples = len(self._labels)
            self._order = epoch_order(self._recipe.seed, epoch, samples)
            # One row for each sample, by its index: a sample's variation does not depend on who computes it.
            rng = np.random.default_rng([self._recipe.seed, epoch, _AUGMENT])
            self._draws = rng.uniform(-1, 1, (samples, 4))
            self._epoch = epoch


def eval_batches(
    split: Split,
    dataset: DataSet,
    image_size: int,
    batch_size: int,
    shard: Shard = Shard(),
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """This worker's part of an evaluation: every sample of the split goes to exactly one worker, once.

    All batches have the same size and all workers get as many, so that nothing recompiles and nobody waits for
    ever; what is missing at the end is filled with the split's first sample and marked.

    Yields:
        images float32 [batch_size, C, H, W], labels int32 [batch_size], indices int64 [batch_size]: the samples'
        places in the split, −1 where filled.
    """
    mean, std = np.array(dataset.mean, np.float32), np.array(dataset.std, np.float32)
    own = np.arange(shard.rank, len(split), shard.workers)
    most = -(-len(split) // shard.workers)
    for start in range(0, most, batch_size):
        indices = np.full(batch_size, -1)
        part = own[start : start + batch_size]
        indices[: len(part)] = part
        rows = np.maximum(indices, 0)
        yield prepare(split.images[rows], image_size, dataset.full_scale, mean, std), split.labels[rows], indices
