"""A feed from image files or records: decoded, cropped and coloured in MindSpore's C++ threads.

An epoch is cut into stretches of about a thousand images. Each has a pipeline of its own, built from an explicit list
of samples and a seed that both follow from (seed, epoch, stretch) alone: the order never depends on threads or
interruption. The C++ operations draw from random generators of their own threads, which know only how many samples
they have seen: so the *augmentation* repeats bit for bit for equal numbers of threads and workers
(`reproducibility_key` says so to a checkpoint), and a resume decodes again what its stretch has seen already, and
nothing before.
Normalisation, erasing, mixup and CutMix happen on the host, as functions of the sample.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.colour import colour_operations, policy_levels
from resnet_fn.data.dataset import DataSet
from resnet_fn.data.file_share import FileShare
from resnet_fn.data.normalise import normalise
from resnet_fn.data.order import Batch
from resnet_fn.data.read_ahead import read_ahead
from resnet_fn.data.sources.files import FileSplit
from resnet_fn.data.sources.records import RecordSplit, cause_of
from resnet_fn.runtime.workers import Workers


class PipelineFeed:
    """A `Feed` from files or records. Updates in sequence come at full speed; any other opens its stretch anew.

    Args:
        as_bytes: images are uint8, as they were decoded; for recipes that neither erase nor mix.

    Raises:
        ValueError: see `Plan`; while running, a file that cannot be read any more.
    """

    # Images of this worker with one pipeline: at least, and as a part of the set. Opening the next takes 2 ms from
    # files; from records 50 ms where there are 400,000, whose places in the shards are read each time.
    _LEAST, _PART = 1024, 64

    def __init__(self, dataset: DataSet, recipe: Recipe, workers: Workers = Workers(), as_bytes: bool = False) -> None:
        self._recipe, self._dataset, self._workers, self._as_bytes = recipe, dataset, workers, as_bytes
        self._share = FileShare(dataset, recipe, workers, as_bytes)
        self._split, self._plan = self._share.split, self._share.plan
        self.updates_per_epoch = self._plan.updates_per_epoch
        share = self._plan.share
        self._chunk = max(part for part in range(1, 17) if share % part == 0)  # small enough for the caches
        self._stretch = max(1, max(self._LEAST, len(self._split) // self._PART) // share)  # updates
        self._next = -1  # the update that the open pipeline gives next
        self._rows: Any = None

    def indices(self, update: int) -> np.ndarray:
        """See `Feed`."""
        return self._share.indices(update)

    def batch(self, update: int) -> Batch:
        """See `Feed`."""
        indices = self.indices(update)
        if self._rows is None or update != self._next:
            self._open(update)
            # The random generators have to pass the same samples to stand where they stood.
            while self._next < update:
                for _ in self._chunks():
                    pass
        images, found = self._share.buffers.take(), np.empty(self._plan.share, np.int64)
        start = 0
        for chunk in self._chunks():
            end = start + self._chunk
            if self._as_bytes:
                images[start:end] = chunk["image"]
            else:
                normalise(chunk["image"], self._dataset.input, images[start:end])
            found[start:end] = chunk["index"].flat
            start = end
        if not np.array_equal(found, indices):
            raise RuntimeError(f"the pipeline gave other samples than those of update {update}")
        place = self._next % self.updates_per_epoch
        if place == 0:
            self.close()
        elif place % self._stretch == 0:
            self._open(self._next)  # now, so that it decodes while the device computes
        return self._share.finish(images, update)

    def reproducibility_key(self) -> dict[str, Any]:
        """The set's size, hashes of what is known of its files, and what the C++ random generators depend on."""
        return {**self._share.key, "data_threads": self._split.threads, "workers": self._workers.size}

    def close(self) -> None:
        """See `Feed`."""
        if self._rows is not None:
            self._rows.stop()
            self._rows = None

    def _chunks(self) -> Iterator[dict[str, np.ndarray]]:
        """The pieces of the next update's share."""
        for _ in range(self._plan.share // self._chunk):
            try:
                yield next(self._rows)
            except RuntimeError as error:
                self.close()
                reason = self._source.failure if self._source else None
                raise ValueError(reason or f"data: {cause_of(error)}; check the files, then resume") from None
        self._next += 1

    def _open(self, update: int) -> None:
        """Open the pipeline of an update's stretch, at its beginning."""
        from mindspore import dataset as engine

        self.close()
        epoch, place = divmod(update, self.updates_per_epoch)
        stretch = place // self._stretch
        first = stretch * self._stretch
        threads = self._split.threads
        engine.config.set_seed(self._plan.engine_seed(epoch, stretch))
        engine.config.set_num_parallel_workers(threads)
        engine.config.set_prefetch_size(max(16, 2 * self._plan.share // self._chunk))
        order = self._share.order(epoch)[first : first + self._stretch].reshape(-1)
        split = self._split
        self._source: _Source | None = None
        if isinstance(split, RecordSplit):
            rows = split.open(order)
        else:
            self._source = _Source(split, order)
            rows = engine.GeneratorDataset(self._source, ["image", "index"], shuffle=False, num_parallel_workers=1)
        rows = rows.map(train_operations(self._recipe), ["image"], num_parallel_workers=threads)
        rows = rows.batch(self._chunk, drop_remainder=True, num_parallel_workers=1)
        self._rows = rows.create_dict_iterator(num_epochs=1, output_numpy=True, do_copy=False)
        self._next = epoch * self.updates_per_epoch + first


class _Source:
    """Files' bytes in a given order, read ahead for MindSpore's pipeline; remembers why it failed."""

    def __init__(self, split: FileSplit, order: np.ndarray) -> None:
        self._split, self._order = split, order
        self.failure: str | None = None

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        with closing(read_ahead(self._split.read_decodable, self._order)) as samples:
            try:
                for index, data in samples:
                    yield np.frombuffer(data, np.uint8), np.array(index, np.int32)
            except Exception as error:
                self.failure = str(error)
                raise

    def __len__(self) -> int:
        return len(self._order)


def train_operations(recipe: Recipe) -> list[Any]:
    """MindSpore's C++ operations from a file's bytes to uint8 [3, image_size, image_size].

    Inception's random resized crop (Szegedy et al., arXiv 1409.4842): area crop_scale..1, aspect ratio 3/4..4/3,
    decoding only what the crop needs; a flip; the recipe's colour operations. They end with bytes: MindSpore's
    Normalize takes twice as long as NumPy does for a batch, and floats four times as long to move.
    """
    from mindspore.dataset import vision

    return [
        vision.RandomCropDecodeResize(recipe.image_size, scale=(recipe.crop_scale, 1.0)),
        *([vision.RandomHorizontalFlip()] if recipe.flip else []),
        *colour_operations(recipe, small=False, levels=policy_levels(recipe)),
        vision.HWC2CHW(),
    ]
