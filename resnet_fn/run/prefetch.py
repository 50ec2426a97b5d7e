"""A feed one update ahead of the step."""

import time

from resnet_fn.data.feed import Feed
from resnet_fn.data.order import Batch


class Prefetcher:
    """Hands out a feed's batches, the next of which is prepared while the device computes.

    The one that is prepared outlives an epoch's end, so that it need not be made beside the checkpoint's thread.

    Args:
        feed: what prepares them.
        total: updates of the whole run; nothing is prepared beyond.
    """

    def __init__(self, feed: Feed, total: int) -> None:
        self._feed, self._total = feed, total
        self._ready: tuple[int, Batch | Exception, float] | None = None

    def get(self, update: int) -> tuple[Batch, float]:
        """This worker's share of an update, and the seconds that it took; prepared now if it is not there yet.

        Raises:
            ValueError: what the feed said, as late as here: the update before is done, and its epoch's end saved.
        """
        if self._ready is None or self._ready[0] != update:
            self.prepare(update)
        assert self._ready is not None
        _, batch, seconds = self._ready
        self._ready = None  # its memory is for the one after the next
        if isinstance(batch, Exception):
            raise batch
        return batch, seconds

    def prepare(self, update: int) -> None:
        """Prepare an update's batch, if the run has that update. Call it when the device has been given its work."""
        if update >= self._total:
            return
        began = time.perf_counter()
        batch: Batch | Exception
        try:
            batch = self._feed.batch(update)
        except Exception as error:
            batch = error
        self._ready = update, batch, time.perf_counter() - began
