"""A feed one update ahead of the step: its batch is prepared and handed over while the device computes."""

import time
from typing import NamedTuple

from mindspore import Tensor

from resnet_fn.data.feed import Feed
from resnet_fn.data.order import Batch
from resnet_fn.runtime.tensors import hand_over
from resnet_fn.update.gradients import on_card


class Prepared(NamedTuple):
    """An update's batch: its arrays, which must not be written while the step computes, their tensors, and the
    seconds that preparing both took.
    """

    batch: Batch
    tensors: tuple[Tensor, ...]
    seconds: float


class Prefetcher:
    """Hands out a feed's batches, the next of which is prepared while the device computes.

    The one that is prepared outlives an epoch's end, so that it need not be made beside the checkpoint's thread.

    Args:
        feed: what prepares them.
        total: updates of the whole run; nothing is prepared beyond.
    """

    def __init__(self, feed: Feed, total: int) -> None:
        self._feed, self._total = feed, total
        self._ready: tuple[int, Prepared | Exception] | None = None
        self._card = on_card()

    def get(self, update: int) -> Prepared:
        """This worker's share of an update; prepared now if it is not there yet.

        Raises:
            ValueError: what the feed said, as late as here: the update before is done, and its epoch's end saved.
        """
        if self._ready is None or self._ready[0] != update:
            self.prepare(update)
        assert self._ready is not None
        prepared = self._ready[1]
        self._ready = None  # its memory is for the one after the next
        if isinstance(prepared, Exception):
            raise prepared
        return prepared

    def prepare(self, update: int) -> None:
        """Prepare an update's batch, if the run has that update. Call it when the device has been given its work."""
        if update >= self._total:
            return
        began = time.perf_counter()
        try:
            batch = self._feed.batch(update)
            tensors = tuple(hand_over(array, self._card) for array in batch)
            self._ready = update, Prepared(batch, tensors, time.perf_counter() - began)
        except Exception as error:
            self._ready = update, error
