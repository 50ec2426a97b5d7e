"""Which samples an update sees, and the random numbers that vary them: pure functions of (seed, epoch or update)."""

from typing import TYPE_CHECKING

import numpy as np

from resnet_fn.data.balance import BALANCED, balanced_order
from resnet_fn.data.mix import Mixing, draw_mixing, erase, mix
from resnet_fn.runtime.workers import Workers

if TYPE_CHECKING:
    from resnet_fn.config.recipe import Recipe

# Names for streams of random numbers that hang on one seed; never renumber them. 2 to 4 and 6 are augment.py's, 11 is
# balance.py's; 8 is sources/validation.py's, 9 and 10 update/noise.py's, and with more words in the seed, which gives
# other numbers, 8 to 10 are photos/augment.py's.
_ORDER, _MIX, _ENGINE = 1, 5, 7


def epoch_order(seed: int, epoch: int, samples: int) -> np.ndarray:
    """The order in which an epoch visits the samples: a permutation of 0..samples−1, from (seed, epoch) alone; int32.

    It is the one thing of an epoch that is drawn whole: 5 MB for ImageNet's 1.28 million samples.
    """
    # int32 takes half the memory of what permutation(samples) gives, and is shuffled to the same order.
    return np.random.default_rng([seed, epoch, _ORDER]).permutation(np.arange(samples, dtype=np.int32))


def split_batch(batch_size: int, workers: int, accumulate: int) -> int:
    """Samples of one micro-batch: batch_size / (workers · accumulate).

    Raises:
        ValueError: the batch does not divide; the message names the nearest batch sizes that would.
    """
    parts = workers * accumulate
    if batch_size % parts == 0:
        return batch_size // parts
    below, above = batch_size // parts * parts, -(-batch_size // parts) * parts
    values = " or ".join(str(value) for value in (below, above) if value)
    raise ValueError(
        f"batch_size: {batch_size} does not divide into {workers} workers x {accumulate} micro-batches; "
        f"use {values}, or another --accumulate"
    )


class Plan:
    """The updates of a run over training samples of these labels.

    An epoch has samples // batch_size updates: what is left over waits for the next epoch's order (every batch is
    whole, so that the step compiles once). With repeated augmentation (Hoffer et al., arXiv 1901.09335) an update
    holds batch_size / repeats different samples, each `repeats` times, and an epoch has as many updates as without.

    Raises:
        ValueError: the batch is larger than the training set, or a worker's share cannot be mixed in pairs.
    """

    def __init__(self, recipe: "Recipe", labels: np.ndarray, classes: int, workers: Workers) -> None:
        samples = len(labels)
        self.recipe, self.labels, self.classes, self.workers = recipe, labels, classes, workers
        self.updates_per_epoch = samples // recipe.batch_size
        self.share = recipe.batch_size // workers.size
        if not self.updates_per_epoch:
            raise ValueError(
                f"batch_size: {recipe.batch_size} is larger than the training set of {samples}; give at most {samples}"
            )
        if recipe.mixes and self.share % 2:
            raise ValueError(
                f"batch_size: mixup and cutmix pair neighbours, and a worker's share of {self.share} is odd; "
                f"give {2 * workers.size * -(-recipe.batch_size // (2 * workers.size))}"
            )

    def order(self, epoch: int) -> np.ndarray:
        """The samples of an epoch's updates, one after the other: int32 [updates_per_epoch · batch_size]."""
        if self.recipe.sampling == BALANCED:
            return self._repeated(balanced_order(self.recipe.seed, epoch, self.labels))
        return self._repeated(epoch_order(self.recipe.seed, epoch, len(self.labels)))

    def draw_numbers(self, order: np.ndarray) -> np.ndarray:
        """Which of the epoch's N random numbers vary each sample of its order.

        The sample's own; with balanced sampling, where one sample comes several times, that of its place.
        """
        return (
            self._repeated(np.arange(len(self.labels), dtype=np.int32)) if self.recipe.sampling == BALANCED else order
        )

    def _repeated(self, order: np.ndarray) -> np.ndarray:
        size, repeats = self.recipe.batch_size, self.recipe.repeats
        unique = order[: self.updates_per_epoch * (size // repeats)].reshape(self.updates_per_epoch, -1)
        return np.tile(unique, repeats).reshape(-1) if repeats > 1 else unique.reshape(-1)

    def own(self, order: np.ndarray) -> np.ndarray:
        """This worker's part of an epoch's order, a copy: [updates_per_epoch, batch_size / workers]."""
        start = self.workers.rank * self.share
        return order.reshape(self.updates_per_epoch, -1)[:, start : start + self.share].copy()

    def repeat_numbers(self) -> np.ndarray:
        """For each place in this worker's share, the which repeat of its sample it is: int64 [share]."""
        places = self.workers.rank * self.share + np.arange(self.share)
        return places // (self.recipe.batch_size // self.recipe.repeats)

    def finish(self, images: np.ndarray, labels: np.ndarray, update: int, erasing: np.ndarray | None) -> "Batch":
        """Erase and mix a worker's share of an update.

        Args:
            images: float32 [n, C, H, W], normalised.
            labels: int32 [n], or float32 [n, classes].
            update: its number.
            erasing: [n, 5], see `erase`; None where the recipe erases nothing.
        """
        recipe = self.recipe
        if erasing is not None:
            images = erase(images, erasing, recipe.erasing)
        if not recipe.mixes:
            return images, labels
        mixing: Mixing | None = None
        if update // self.updates_per_epoch < recipe.epochs - recipe.mix_off_epochs:
            rng = np.random.default_rng([recipe.seed, update, _MIX])
            mixing = draw_mixing(rng, recipe.mixup, recipe.cutmix, recipe.mix_switch, *images.shape[2:])
        images, soft = mix(images, labels, self.classes, mixing)
        if recipe.label_threshold:
            soft = (soft > recipe.label_threshold).astype(np.float32)
        return images, soft

    def engine_seed(self, epoch: int, stretch: int) -> int:
        """The seed of MindSpore's C++ pipeline on this worker in a stretch of an epoch: 0..2^32−1."""
        entropy = [self.recipe.seed, epoch, stretch, self.workers.rank, _ENGINE]
        return int(np.random.SeedSequence(entropy).generate_state(1)[0])


Batch = tuple[np.ndarray, np.ndarray]
