"""A feed from image files or records: decoded, cropped and normalised in MindSpore's C++ threads.

The pipeline is built anew for every epoch, from an explicit list of samples and a seed that both follow from
(seed, epoch) alone: the order never depends on threads or interruption. The C++ operations draw from random
generators of their own threads, so the *augmentation* repeats bit for bit for equal numbers of threads and workers;
`repeats_with` says so to a checkpoint. Erasing, mixup and CutMix happen on the host, as functions of the sample.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from resnet_fn.config import Recipe
from resnet_fn.data.crop import colour_operations
from resnet_fn.data.files import FileSplit
from resnet_fn.data.order import Batch, Plan, Shard
from resnet_fn.data.pipeline import Feed, TrainData
from resnet_fn.data.records import RecordSplit
from resnet_fn.data.sources import DataSet, Split
from resnet_fn.runtime import first_line


def make_feed(dataset: DataSet, recipe: Recipe, shard: Shard = Shard()) -> Feed:
    """The training feed that fits a data set."""
    if isinstance(dataset.train, Split):
        return TrainData(dataset, recipe, shard)
    return StreamData(dataset, recipe, shard)


class StreamData:
    """A `Feed` from files or records. Updates in sequence come at full speed; any other starts its epoch anew.

    Raises:
        ValueError: see `Plan`; while running, a file that cannot be read any more.
    """

    def __init__(self, dataset: DataSet, recipe: Recipe, shard: Shard = Shard()) -> None:
        self._recipe, self._dataset, self._shard = recipe, dataset, shard
        self._plan = Plan(recipe, len(dataset.train), len(dataset.classes), shard)
        self.updates_per_epoch = self._plan.updates_per_epoch
        self._repeats = self._plan.repeat_numbers()
        self._epoch = -1
        self._next = -1  # the update that the open pipeline gives next
        self._rows: Any = None

    def indices(self, update: int) -> np.ndarray:
        """See `Feed`."""
        self._draw_epoch(update // self.updates_per_epoch)
        return self._order[update % self.updates_per_epoch]

    def batch(self, update: int) -> Batch:
        """See `Feed`."""
        indices = self.indices(update)
        if self._rows is None or update != self._next:
            self._open(update // self.updates_per_epoch)
            # The random generators have to pass the same samples to stand where they stood.
            while self._next < update:
                self._advance()
        row = self._advance()
        if not np.array_equal(row["index"].reshape(-1), indices):
            raise RuntimeError(f"the pipeline gave other samples than those of update {update}")
        if self._next % self.updates_per_epoch == 0:
            self.close()
        erasing = self._draws["erasing"][self._repeats, indices] if self._recipe.erasing else None
        return self._plan.finish(row["image"], self._dataset.train.labels[indices], update, erasing)

    def repeats_with(self) -> dict[str, Any]:
        """The set's size, and what the C++ random generators depend on."""
        return {
            "samples": len(self._dataset.train),
            "data_threads": self._dataset.threads,
            "workers": self._shard.workers,
        }

    def close(self) -> None:
        """See `Feed`."""
        if self._rows is not None:
            self._rows.stop()
            self._rows = None

    def _advance(self) -> dict[str, np.ndarray]:
        try:
            row = next(self._rows)
        except RuntimeError as error:
            self.close()
            reason = self._source.failure if self._source else None
            raise ValueError(reason or f"data: {_cause(error)}; check the files, then resume") from None
        self._next += 1
        return row

    def _draw_epoch(self, epoch: int) -> None:
        if epoch != self._epoch:
            self._order = self._plan.own(self._plan.order(epoch))
            self._draws = self._plan.draws(epoch, ("erasing",) if self._recipe.erasing else ())
            self._epoch = epoch

    def _open(self, epoch: int) -> None:
        from mindspore import dataset as engine

        self.close()
        threads = self._dataset.threads
        engine.config.set_seed(self._plan.engine_seed(epoch))
        engine.config.set_num_parallel_workers(threads)
        order = self._order.reshape(-1)
        split = self._dataset.train
        self._source: _Source | None = None
        if isinstance(split, RecordSplit):
            rows = split.open(order)
        else:
            assert isinstance(split, FileSplit)
            self._source = _Source(split, order)
            rows = engine.GeneratorDataset(self._source, ["image", "index"], shuffle=False, num_parallel_workers=1)
        operations = train_operations(self._recipe, self._dataset)
        rows = rows.map(operations, ["image"], num_parallel_workers=threads)
        rows = rows.batch(self._plan.share, drop_remainder=True, num_parallel_workers=1)
        self._rows = rows.create_dict_iterator(num_epochs=1, output_numpy=True, do_copy=False)
        self._next = epoch * self.updates_per_epoch


class _Source:
    """Files' bytes in a given order, for MindSpore's pipeline; remembers why it failed."""

    def __init__(self, split: FileSplit, order: np.ndarray) -> None:
        self._split, self._order = split, order
        self.failure: str | None = None

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for index in self._order:
            try:
                data = self._split.read_decodable(index)
            except Exception as error:
                self.failure = str(error)
                raise
            yield np.frombuffer(data, np.uint8), np.array(index, np.int32)

    def __len__(self) -> int:
        return len(self._order)


def train_operations(recipe: Recipe, dataset: DataSet) -> list[Any]:
    """MindSpore's C++ operations from a file's bytes to float32 [3, image_size, image_size].

    Inception's random resized crop (Szegedy et al., arXiv 1409.4842): area crop_scale..1, aspect ratio 3/4..4/3,
    decoding only what the crop needs; a flip; the recipe's colour operations; normalisation.
    """
    from mindspore.dataset import vision

    mean = [255.0 * value for value in dataset.mean]
    std = [255.0 * value for value in dataset.std]
    return [
        vision.RandomCropDecodeResize(recipe.image_size, scale=(recipe.crop_scale, 1.0)),
        *([vision.RandomHorizontalFlip()] if recipe.flip else []),
        *colour_operations(recipe, small=False),
        vision.HWC2CHW(),  # first: bytes are quicker to move than floats
        vision.Normalize(mean, std, is_hwc=False),
    ]


def _cause(error: RuntimeError) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    marks = [number for number, line in enumerate(lines) if "Error Message" in line or "Exception" in line]
    told = [line for line in lines[marks[0] + 1 :] if line.strip("- ")] if marks else []
    return told[0] if told else first_line(error)
