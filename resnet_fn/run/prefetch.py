"""A feed one update ahead of the step: a thread prepares the next batch while the device computes."""

import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import mindspore
import numpy as np
from mindspore import Tensor

from resnet_fn.data.dataset import BadSampleError
from resnet_fn.data.feed import Feed
from resnet_fn.data.order import Batch
from resnet_fn.update.ascend import on_ascend


class Prepared(NamedTuple):
    """An update's batch."""

    batch: Batch  # its arrays, which must not be written while the step computes
    tensors: tuple[Tensor, ...]  # the same as tensors
    seconds: float  # the time that preparing them took
    error: BadSampleError | None = None  # why the batch is blank; None: it is not


class Prefetcher:
    """Hands out a feed's batches, the next prepared in a thread; `blank` replaces one that cannot be read."""

    def __init__(self, feed: Feed, total: int, blank: Batch) -> None:
        self._feed, self._total, self._blank = feed, total, blank
        self._card = on_ascend()
        self._thread = ThreadPoolExecutor(1, "prefetch")
        self._prepared: dict[int, Future[Prepared]] = {}  # by update, one at most

    def get(self, update: int) -> Prepared:
        """Return this worker's share of an update, prepared now if not begun.

        Raises the feed's errors, except a `BadSampleError`, which is returned.
        """
        if update not in self._prepared:
            self.start(update)
        return self._prepared.pop(update).result()  # nothing is kept: the memory is for a later batch

    def start(self, update: int) -> None:
        """Start to prepare an update's batch in a thread, if the run has that update."""
        if update < self._total:
            self._prepared = {update: self._thread.submit(self._prepare, update)}

    def close(self) -> None:
        """Wait until no thread prepares anything; nothing can be prepared any more."""
        self._thread.shutdown()

    def _prepare(self, update: int) -> Prepared:
        began, error = time.perf_counter(), None
        try:
            batch = self._feed.batch(update)
        except BadSampleError as bad:
            batch, error = self._blank, bad
        tensors = tuple(to_device(array, self._card) for array in batch)
        return Prepared(batch, tensors, time.perf_counter() - began, error)


def to_device(array: np.ndarray, card: bool = False) -> Any:
    """Return a tensor that reads an array's own memory (`Tensor(array)` copies); for a card a copy.

    MindSpore holds a reference to the array as long as it may read it (a compiled function: until its next call). Do
    not write to it before. An array that is not contiguous is copied. On a card the copy is the one way that every
    version of CANN defines: see docs/ascend.md.
    """
    return Tensor(array) if card else mindspore.from_numpy(array)
