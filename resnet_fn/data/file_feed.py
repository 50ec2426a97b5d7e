"""A feed from image files or records, decoded by Pillow in threads: each sample's pixels hang on nothing but
(seed, epoch, sample), so they are the same for any number of threads and workers, and from anywhere.

Files are read ahead in order (`FileSplit.stream`), each is decoded, cropped, coloured and normalised by one of the
threads straight into its place in the batch, and the next update's images are begun before this one's are waited for.
"""

from collections.abc import Generator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.dataset import DataSet
from resnet_fn.data.file_share import FileShare
from resnet_fn.data.normalise import normalise
from resnet_fn.data.order import Batch
from resnet_fn.data.photos.augment import training_pixels
from resnet_fn.data.preprocess import naming
from resnet_fn.runtime.workers import Workers


class _Begun(NamedTuple):
    """A batch that is being decoded: its memory, and what is to be waited for."""

    images: np.ndarray
    decoded: "list[Future[None]]"


class FileFeed:
    """A `Feed` from files or records. Any update costs what it computes, and nothing before it.

    Args:
        as_bytes: images are uint8, as they were decoded; for recipes that neither erase nor mix.

    Raises:
        ValueError: see `Plan`; while running, a file that cannot be read or decoded.
    """

    def __init__(self, dataset: DataSet, recipe: Recipe, workers: Workers = Workers(), as_bytes: bool = False) -> None:
        self._recipe, self._input, self._as_bytes = recipe, dataset.input, as_bytes
        self._share = FileShare(dataset, recipe, workers, as_bytes)
        self.updates_per_epoch = self._share.plan.updates_per_epoch
        self._begun: dict[int, _Begun] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._samples: Generator[tuple[int, bytes], None, None]

    def indices(self, update: int) -> np.ndarray:
        """See `Feed`."""
        return self._share.indices(update)

    def batch(self, update: int) -> Batch:
        """See `Feed`."""
        try:
            images = self._decoded(update)
        except BaseException:  # what was begun is not what it should be
            self.close()
            raise
        if not self._begun:
            self.close()
        return self._share.finish(images, update)

    def reproducibility_key(self) -> dict[str, Any]:
        """The set's size and hashes of what is known of its files; pixels hang on neither threads nor workers."""
        return self._share.key

    def close(self) -> None:
        """See `Feed`."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._samples.close()
            self._pool = None
            self._begun.clear()

    def _decoded(self, update: int) -> np.ndarray:
        """An update's images, and the next one's are begun."""
        if update not in self._begun:
            self.close()
            epoch, place = divmod(update, self.updates_per_epoch)
            self._samples = self._share.split.stream(self._share.order(epoch)[place:].reshape(-1))
            self._pool = ThreadPoolExecutor(self._share.split.threads, "decode")
            self._begin(update)
        if (update + 1) % self.updates_per_epoch:
            self._begin(update + 1)  # so that no thread idles, and the next are decoded while the device computes
        images, decoded = self._begun.pop(update)
        wait(decoded, return_when=FIRST_EXCEPTION)  # woken once, not by each image: the threads need the interpreter
        for future in decoded:
            future.result()
        return images

    def _begin(self, update: int) -> None:
        """Hand an update's images to the threads; what cannot be read is told when the update's turn comes."""
        assert self._pool is not None
        images, decoded = self._share.buffers.take(), []
        epoch = update // self.updates_per_epoch
        numbers, found = self._share.numbers(update), []
        try:
            for place, (index, data) in enumerate(islice(self._samples, len(images))):
                job = (images[place : place + 1], index, data, epoch, *numbers[place])
                decoded.append(self._pool.submit(self._decode, *job))
                found.append(index)
            if found != self._share.indices(update).tolist():
                raise RuntimeError(f"the files gave other samples than those of update {update}")
        except (ValueError, RuntimeError) as error:  # told when the update's turn comes
            failed: Future[None] = Future()
            failed.set_exception(error)
            decoded.append(failed)
        self._begun[update] = _Begun(images, decoded)

    def _decode(self, target: np.ndarray, index: int, data: bytes, epoch: int, repeat: int, number: int) -> None:
        with naming(self._share.split.undecodable, index):
            pixels = training_pixels(data, self._recipe, epoch, repeat, number)
        planes = pixels.transpose(2, 0, 1)[None]
        if self._as_bytes:
            target[:] = planes
        else:
            normalise(planes, self._input, target)
