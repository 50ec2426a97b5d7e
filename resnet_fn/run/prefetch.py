"""`Prefetcher` prepares the next update's batch in a thread, while the device computes the current
update.
"""

import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import mindspore
import numpy as np
from mindspore import Tensor

from resnet_fn.data.feed import Feed
from resnet_fn.data.order import Batch
from resnet_fn.update.ascend import on_ascend


class Prepared(NamedTuple):
    """Holds an update's batch as arrays and as tensors."""

    batch: Batch  # images and labels as arrays, which must not be written while the step computes
    tensors: tuple[Tensor, ...]  # images and labels as tensors
    seconds: float  # time to prepare the batch
    error: Exception | None = None  # the error if the batch could not be prepared and is blank


class Prefetcher:
    """Prepares the next batch of a feed in a thread.

    A batch that cannot be prepared is replaced by the batch `blank`.
    """

    def __init__(self, feed: Feed, total: int, blank: Batch) -> None:
        self._feed = feed
        self._total = total
        self._blank = blank
        self._card = on_ascend()
        # made now, because a later lack of memory can be why a batch cannot be prepared
        self._blank_tensors = self._tensors(blank)
        self._thread = ThreadPoolExecutor(1, "prefetch")
        self._prepared: dict[int, Future[Prepared]] = {}  # by update, one at most

    def get(self, update: int) -> Prepared:
        """Return the batch of an update.

        If `start` was not called for this update, the batch is prepared now.
        """
        if update not in self._prepared:
            self.start(update)
        # no reference is kept, so that a later batch can reuse the memory
        return self._prepared.pop(update).result()

    def start(self, update: int) -> None:
        """Start to prepare the batch of `update` in a thread, or do nothing if the run ends before
        `update`.
        """
        if update < self._total:
            self._prepared = {update: self._thread.submit(self._prepare, update)}

    def close(self) -> None:
        """Wait for the batch that is being prepared, and end the thread."""
        self._thread.shutdown()

    def _prepare(self, update: int) -> Prepared:
        began = time.perf_counter()
        error = None
        try:
            batch = self._feed.batch(update)
            tensors = self._tensors(batch)
        except Exception as raised:  # a bad sample, but also a lack of memory, threads, files …
            batch = self._blank
            tensors = self._blank_tensors
            error = raised
        return Prepared(batch, tensors, time.perf_counter() - began, error)

    def _tensors(self, batch: Batch) -> tuple[Tensor, ...]:
        return tuple(to_device(array, self._card) for array in batch)


def to_device(array: np.ndarray, card: bool = False) -> Any:
    """Return a tensor that shares the memory of a contiguous `array`, or a copy of `array` for a
    card.

    Do not write to `array` while MindSpore may read it. A compiled function may read `array` until
    its next call.
    """
    # a card needs a copy: see docs/ascend.md
    return Tensor(array) if card else mindspore.from_numpy(array)
