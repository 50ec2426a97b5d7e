"""A feed from arrays in memory."""

from typing import Any

import numpy as np

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.augment import STREAMS, draw_epoch, vary_images, vary_pixels
from resnet_fn.data.dataset import DataSet, Split
from resnet_fn.data.normalise import prepare
from resnet_fn.data.order import Batch, Plan
from resnet_fn.runtime.workers import Workers


class MemoryFeed:
    """A `Feed` from arrays in memory; a sample's augmentation is a function of (seed, epoch, sample).

    Raises:
        ValueError: see `Plan`.
    """

    _MOST_PREPARED = 64 << 20  # bytes of normalised images that are kept, to spare small sets the work every epoch

    def __init__(self, dataset: DataSet, recipe: Recipe, workers: Workers = Workers()) -> None:
        if not isinstance(dataset.train, Split):
            raise ValueError(f"dataset: {recipe.dataset!r} is not in memory; use make_feed")
        self._recipe, self._dataset, self._split = recipe, dataset, dataset.train
        self._plan = Plan(recipe, dataset.train.labels, len(dataset.classes), workers)
        self.updates_per_epoch = self._plan.updates_per_epoch
        changes_bytes = any(STREAMS[name].wanted(recipe) for name in ("crop", "colour"))
        size = len(dataset.train) * dataset.input.channels * recipe.image_size**2 * 4
        self._prepared = None if changes_bytes or size > self._MOST_PREPARED else self._prepare(self._split.images)
        self._repeats = self._plan.repeat_numbers()
        self._epoch = -1

    def indices(self, update: int) -> np.ndarray:
        """See `Feed`."""
        self._draw_epoch(update // self.updates_per_epoch)
        return self._order[update % self.updates_per_epoch].astype(np.int64)

    def batch(self, update: int) -> Batch:
        """See `Feed`."""
        indices, recipe = self.indices(update), self._recipe
        numbers = self._numbers[update % self.updates_per_epoch]
        draws = {name: drawn[self._repeats, numbers] for name, drawn in self._draws.items()}
        if self._prepared is not None:
            images = self._prepared[indices]
        else:
            images = self._prepare(vary_pixels(self._split.images[indices], draws, recipe))
        images = vary_images(images, draws, recipe, self._dataset.input)
        return self._plan.finish(images, self._split.labels[indices], update, draws.get("erasing"))

    def reproducibility_key(self) -> dict[str, Any]:
        """Nothing but the set: NumPy's draws know neither threads nor workers."""
        return {"samples": len(self._split)}

    def close(self) -> None:
        """Nothing to end."""

    def _prepare(self, images: np.ndarray) -> np.ndarray:
        return prepare(images, self._recipe.image_size, self._dataset.input)

    def _draw_epoch(self, epoch: int) -> None:
        if epoch != self._epoch:
            order = self._plan.order(epoch)
            self._order, self._numbers = self._plan.own(order), self._plan.own(self._plan.draw_numbers(order))
            self._draws = draw_epoch(self._recipe, epoch, len(self._split))
            self._epoch = epoch
