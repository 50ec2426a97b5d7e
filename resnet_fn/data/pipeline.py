"""What an update is fed with: a pure function of (seed, update), whatever the workers and micro-batches."""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.augment import prepare, random_affine
from resnet_fn.data.crop import colour_each, crop_and_flip
from resnet_fn.data.dataset import DataSet, Samples, Split
from resnet_fn.data.order import Batch, Plan, Shard, epoch_order

__all__ = ["Feed", "Shard", "TrainData", "epoch_order", "eval_batches"]


class Feed(Protocol):
    """The training samples of every update.

    Attributes:
        updates_per_epoch: updates in a pass over the training set.
    """

    updates_per_epoch: int

    def indices(self, update: int) -> np.ndarray:
        """The samples of this worker's share of an update, in order: int64 [batch_size / workers]."""

    def batch(self, update: int) -> Batch:
        """This worker's share of an update: images float32 [n, C, H, W] and their labels.

        Labels are int32 [n], or with mixup or CutMix float32 [n, classes], throughout the run.
        """

    def reproducibility_key(self) -> dict[str, Any]:
        """What a resumed run must have in common with this one to see the same bits, as JSON types."""

    def close(self) -> None:
        """End what feeds this: no thread is left. Further calls do nothing."""


class TrainData:
    """A `Feed` from arrays in memory; a sample's augmentation is a function of (seed, epoch, sample).

    Raises:
        ValueError: see `Plan`.
    """

    _MOST_PREPARED = 64 << 20  # bytes of normalised images that are kept, to spare small sets the work every epoch

    def __init__(self, dataset: DataSet, recipe: Recipe, shard: Shard = Shard()) -> None:
        if not isinstance(dataset.train, Split):
            raise ValueError(f"dataset: {recipe.dataset!r} is not in memory; use make_feed")
        self._recipe, self._dataset, self._split = recipe, dataset, dataset.train
        self._plan = Plan(recipe, len(dataset.train), len(dataset.classes), shard)
        self.updates_per_epoch = self._plan.updates_per_epoch
        self._colours = bool(recipe.policy or recipe.color_jitter)
        changes_bytes = recipe.crop_padding or recipe.flip or self._colours
        size = len(dataset.train) * dataset.channels * recipe.image_size**2 * 4
        self._prepared = None if changes_bytes or size > self._MOST_PREPARED else self._prepare(self._split.images)
        wanted = {
            "affine": recipe.max_shift or recipe.max_rotation or recipe.max_zoom,
            "crop": recipe.crop_padding or recipe.flip,
            "colour": self._colours,
            "erasing": recipe.erasing,
        }
        self._streams = tuple(name for name, want in wanted.items() if want)
        self._repeats = self._plan.repeat_numbers()
        self._epoch = -1

    def indices(self, update: int) -> np.ndarray:
        """See `Feed`."""
        self._draw_epoch(update // self.updates_per_epoch)
        return self._order[update % self.updates_per_epoch]

    def batch(self, update: int) -> Batch:
        """See `Feed`."""
        indices, recipe = self.indices(update), self._recipe
        draws = {name: drawn[self._repeats, indices] for name, drawn in self._draws.items()}
        if self._prepared is not None:
            images = self._prepared[indices]
        else:
            pixels = self._split.images[indices]
            if "crop" in draws:
                pixels = crop_and_flip(pixels, draws["crop"], recipe.crop_padding, recipe.flip)
            if self._colours:
                pixels = colour_each(pixels, recipe, draws["colour"])
            images = self._prepare(pixels)
        if "affine" in draws:
            mean, std = self._dataset.moments
            images = random_affine(
                images, draws["affine"], recipe.max_shift, recipe.max_rotation, recipe.max_zoom, -mean / std
            )
        return self._plan.finish(images, self._split.labels[indices], update, draws.get("erasing"))

    def reproducibility_key(self) -> dict[str, Any]:
        """Nothing but the set: NumPy's draws know neither threads nor workers."""
        return {"samples": len(self._split)}

    def close(self) -> None:
        """Nothing to end."""

    def _prepare(self, images: np.ndarray) -> np.ndarray:
        return prepare(images, self._recipe.image_size, self._dataset.full_scale, *self._dataset.moments)

    def _draw_epoch(self, epoch: int) -> None:
        if epoch != self._epoch:
            self._order = self._plan.own(self._plan.order(epoch))
            self._draws = self._plan.draws(epoch, self._streams)
            self._epoch = epoch


def eval_batches(
    split: Samples,
    dataset: DataSet,
    image_size: int,
    batch_size: int,
    shard: Shard = Shard(),
    block: int = 1,
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """This worker's part of an evaluation: every sample of the split goes to exactly one worker, once.

    Workers take turns at blocks of `block` samples; `batch_size` is a multiple of it. So a sample's place in its
    block is its number modulo `block`, whatever the number of workers and the batch size.

    All batches have the same size and all workers get as many, so that nothing recompiles and nobody waits for
    ever; what is missing at the end is filled with the split's first sample and marked.

    Yields:
        images float32 [batch_size, C, H, W], labels int32 [batch_size], indices int64 [batch_size]: the samples'
        places in the split, −1 where filled.
    """
    blocks = -(-len(split) // block)
    own = (np.arange(shard.rank, blocks, shard.workers)[:, None] * block + np.arange(block)).ravel()
    own = own[own < len(split)]  # only the last block of all can be short
    most = -(-blocks // shard.workers) * block
    batches = []
    for start in range(0, most, batch_size):
        indices = np.full(batch_size, -1)
        part = own[start : start + batch_size]
        indices[: len(part)] = part
        batches.append(indices)
    rows = [np.maximum(indices, 0) for indices in batches]
    for indices, images in zip(batches, split.eval_images(rows, dataset, image_size), strict=True):
        yield images, split.labels[np.maximum(indices, 0)], indices
