"""A worker's share of updates over image files or records: which samples, and what is done once they are decoded."""

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from resnet_fn.data.augment import draw_samples
from resnet_fn.data.buffers import Buffers
from resnet_fn.data.dataset import DataSet
from resnet_fn.data.order import Batch, Plan
from resnet_fn.runtime.disk import sha256
from resnet_fn.runtime.malloc import limit_arenas
from resnet_fn.runtime.workers import Workers

if TYPE_CHECKING:
    from resnet_fn.config.recipe import Recipe
    from resnet_fn.data.sources.files import FileSplit
    from resnet_fn.data.sources.records import RecordSplit


class FileShare:
    """What both feeds from files have in common.

    Attributes:
        split: the training samples.
        plan: the updates.
        repeats: for each place in the share, the which repeat of its sample it is.
        buffers: memory of batches, float32 or as bytes uint8 [share, 3, image_size, image_size].

    Raises:
        ValueError: see `Plan`.
    """

    def __init__(self, dataset: DataSet, recipe: "Recipe", workers: Workers, as_bytes: bool) -> None:
        self.split, self._recipe = cast("FileSplit | RecordSplit", dataset.train), recipe
        self.plan = Plan(recipe, self.split.labels, len(dataset.classes), workers)
        self.repeats = self.plan.repeat_numbers()
        shape = (self.plan.share, 3, recipe.image_size, recipe.image_size)
        self.buffers = Buffers(shape, np.uint8 if as_bytes else np.float32)
        listing, known = self.split.listing + self.split.labels.tobytes(), self.split.contents
        self.key: dict[str, Any] = {
            "samples": len(self.split),
            "files": sha256(listing),
            **({"contents": sha256(known)} if known else {}),
            "feed": "uint8" if as_bytes else "float32",
        }
        self._epoch = -1
        limit_arenas(self.split.threads + 2)  # those that decode, the one that reads, ours

    def order(self, epoch: int) -> np.ndarray:
        """This worker's samples of an epoch: int32 [updates_per_epoch, share]."""
        self._draw_epoch(epoch)
        return self._order

    def indices(self, update: int) -> np.ndarray:
        """See `Feed`."""
        epoch, place = divmod(update, self.plan.updates_per_epoch)
        return self.order(epoch)[place].astype(np.int64)

    def numbers(self, update: int) -> list[tuple[int, int]]:
        """The (repeat, number) of each place, which say what random numbers vary it; see `Plan.draw_numbers`."""
        epoch, place = divmod(update, self.plan.updates_per_epoch)
        self._draw_epoch(epoch)
        return list(zip(self.repeats.tolist(), self._numbers[place].tolist(), strict=True))

    def finish(self, images: np.ndarray, update: int) -> Batch:
        """Erase and mix decoded images, and give them their labels."""
        erasing = None
        if self._recipe.erasing:
            epoch = update // self.plan.updates_per_epoch
            erasing = draw_samples(self._recipe, epoch, len(self.split), "erasing", self.numbers(update))
        return self.plan.finish(images, self.split.labels[self.indices(update)], update, erasing)

    def _draw_epoch(self, epoch: int) -> None:
        if epoch != self._epoch:
            order = self.plan.order(epoch)
            self._order, self._numbers = self.plan.own(order), self.plan.own(self.plan.draw_numbers(order))
            self._epoch = epoch
