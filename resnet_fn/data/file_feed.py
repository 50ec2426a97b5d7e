"""`FileFeed` decodes image files in threads, and makes training batches from the images."""

import sys
from functools import cached_property, partial
from typing import Any, cast

import numpy as np

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.agreement import identify
from resnet_fn.data.dataset import DataSet
from resnet_fn.data.images import normalise
from resnet_fn.data.mix import erase_and_mix
from resnet_fn.data.order import Batch, Plan
from resnet_fn.data.preprocess import naming, training_pixels
from resnet_fn.data.sources.decoder import Decoder, Decoding, results
from resnet_fn.data.sources.files import FileSplit
from resnet_fn.data.sources.records import RecordSplit
from resnet_fn.runtime.malloc import limit_arenas
from resnet_fn.runtime.workers import Workers


class FileFeed(Plan):
    """Makes batches from image files or MindRecord shards.

    With `as_bytes`, images are uint8 and not normalised. While the caller uses an update, threads
    decode the next one. The feed holds at most 256 MB, or two batches and their files if these are
    more: the images of two updates, files that wait (`MOST_WAITING`), and a file for each thread.
    """

    def __init__(self, dataset: DataSet, recipe: Recipe, workers: Workers, as_bytes: bool) -> None:
        super().__init__(recipe, dataset.train.labels, workers)
        self._input = dataset.input
        self._as_bytes = as_bytes
        self._split = cast(FileSplit | RecordSplit, dataset.train)
        shape = (self.share, 3, recipe.image_size, recipe.image_size)
        self._buffers = Buffers(shape, np.uint8 if as_bytes else np.float32)
        self._begun: dict[int, tuple[np.ndarray, Decoding]] = {}  # by update, two at most
        self._decoder: Decoder | None = None
        # decoding threads, the reading thread, the caller's thread
        limit_arenas(self._split.threads + 2)

    def batch(self, update: int) -> Batch:
        """Return this worker's share of a batch.

        Raises BadSampleError if a sample cannot be read or decoded.
        """
        try:
            images = self._decoded(update)
        except BaseException:  # unfinished images must not be used
            self.close()
            raise
        if not self._begun:
            self.close()
        epoch = update // self.updates_per_epoch
        erasing = self.draws(update).get("erasing")
        batch = images, self.labels[self.indices(update)]
        return erase_and_mix(self.recipe, batch, len(self._input.classes), update, epoch, erasing)

    # hashing takes 0.3 s for a million files, and a checkpoint should not wait for that
    @cached_property
    def reproducibility_key(self) -> dict[str, Any]:
        """Return a dict that identifies the data.

        A resumed run compares the dict with the checkpoint's dict.
        """
        feed = "uint8" if self._as_bytes else "float32"
        return {**identify(self._split), "feed": feed}

    def close(self) -> None:
        """End all threads and drop unfinished images.

        The next call of `batch` starts new threads.
        """
        if self._decoder is not None:
            self._decoder.close()
            self._decoder = None
            self._begun.clear()

    def _decoded(self, update: int) -> np.ndarray:
        """Return an update's images, and begin to decode the next update of the epoch, if any."""
        if self._decoder is None or update not in self._begun:
            self.close()
            epoch, index = divmod(update, self.updates_per_epoch)
            order = self.epoch(epoch)[0][index:].reshape(-1)
            self._decoder = Decoder(self._split.stream(order), self._split.threads)
            self._begin(self._decoder, update)
        if (update + 1) % self.updates_per_epoch:
            self._begin(self._decoder, update + 1)  # decoded while the device computes
        images, decoding = self._begun.pop(update)
        results(decoding)
        return images

    def _begin(self, decoder: Decoder, update: int) -> None:
        """Let threads decode the images of an update."""
        images = self._buffers.take()
        epoch, index = divmod(update, self.updates_per_epoch)
        numbers = self.epoch(epoch)[1][index].tolist()
        decode = partial(self._decode, images, epoch, numbers)
        self._begun[update] = images, decoder.begin(self.indices(update).tolist(), decode)

    def _decode(
        self,
        images: np.ndarray,
        epoch: int,
        numbers: list[int],
        row: int,
        index: int,
        data: bytes,
    ) -> None:
        """Decode a file into its place in `images`. Its number seeds its augmentation."""
        with naming(self._split.undecodable, index):
            repeat = int(self.repeat_numbers[row])
            pixels = training_pixels(data, self.recipe, epoch, repeat, numbers[row])
        planes = pixels.transpose(2, 0, 1)[None]
        target = images[row : row + 1]
        if self._as_bytes:
            target[:] = planes
        else:
            normalise(planes, self._input, target)


class Buffers:
    """Reuses arrays that no caller references.

    With a new array for each batch, a feed would take 7 to 11 % longer.
    """

    # references to an unused array in `take`: the list, the variable and getrefcount's argument
    _HELD_HERE = 3
    _MOST = 4  # at most this many arrays are kept

    def __init__(self, shape: tuple[int, ...], dtype: type = np.float32) -> None:
        self._shape = shape
        self._dtype = dtype
        self._arrays: list[np.ndarray] = []

    def take(self) -> np.ndarray:
        """Return an unused array, whose values are arbitrary."""
        for array in self._arrays:
            if sys.getrefcount(array) == self._HELD_HERE:
                return array
        array = np.empty(self._shape, self._dtype)
        if len(self._arrays) < self._MOST:
            self._arrays.append(array)
        return array
