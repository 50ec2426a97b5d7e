"""Data sets: two splits of samples and the input of a net; their checks, and the batches of an evaluation."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np

from resnet_fn.data.images import prepare
from resnet_fn.data.input_spec import InputSpec
from resnet_fn.data.order import Batch
from resnet_fn.runtime.workers import Workers, gather_texts


class BadSampleError(ValueError):
    """A sample cannot be read or decoded; the message names its file and the fix."""


def describe_bad_samples(error: BadSampleError | None, workers: Workers) -> str:
    """Return which rank cannot read what, the same text on all ranks; all must call it with their `error`, or None."""
    texts = gather_texts(str(error or ""), workers)
    return "; ".join(f"rank {rank}: {text}" if workers.size > 1 else text for rank, text in enumerate(texts) if text)


class Samples(Protocol):
    """One split of a data set: arrays in memory, image files, or records."""

    @property
    def labels(self) -> np.ndarray:
        """Labels, int32 [N]; for several classes an image float32 [N, classes], 1 for each class of the image."""

    def __len__(self) -> int: ...

    def eval_images(self, batches: Iterable[np.ndarray], spec: InputSpec) -> Iterator[np.ndarray]:
        """Return the images of each array of sample numbers as evaluation sees them, float32 [n, C, H, W]."""


@dataclasses.dataclass(frozen=True)
class Split:
    """Images uint8 [N, H, W, C] and their labels int32 [N]."""

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def eval_images(self, batches: Iterable[np.ndarray], spec: InputSpec) -> Iterator[np.ndarray]:
        """See `Samples`; images are resized as a whole, without a crop."""
        for rows in batches:
            yield prepare(self.images[rows], spec.image_size, spec)


@dataclasses.dataclass(frozen=True)
class Arrays(Split):
    """Inputs of any shape and dtype, which a net gets as they are, and their targets (`resnet_fn.fit`)."""

    def eval_images(self, batches: Iterable[np.ndarray], spec: InputSpec) -> Iterator[np.ndarray]:
        """See `Samples`."""
        for rows in batches:
            yield self.images[rows]


@dataclasses.dataclass(frozen=True)
class DataSet:
    """Two splits, and the input of a net that is trained on them."""

    train: Samples
    test: Samples
    input: InputSpec
    notes: tuple[str, ...] = ()  # lines for the user
    # Image files that were left out, with their faults (see `sources.scan`); None: none was looked for.
    bad_files: tuple[str, ...] | None = None
    held_out: tuple[str, ...] = ()  # names of test files that were split off the training folder; see `split_off`
    digest: str = ""  # of the values of a caller's own arrays; "" for other sets

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names; a label is an index into them. () if a caller's own targets are no classes."""
        return self.input.classes


def check_labels(split: Samples, classes: int, what: str) -> None:
    """Raise a ValueError if a label is outside 0..classes−1: cross-entropy silently ignores samples of label −1."""
    if split.labels.ndim == 2:
        return  # made from the class names
    wrong = np.flatnonzero((split.labels < 0) | (split.labels >= classes))
    if len(wrong):
        index = int(wrong[0])
        raise ValueError(
            f"{what}: sample {index} has label {int(split.labels[index])}, outside 0..{classes - 1} "
            f"({len(wrong)} such samples); fix the labels or the number of classes"
        )


def blank_batch(dataset: DataSet, count: int, size: int, mixes: bool, dtype: str = "float32") -> Batch:
    """Make a batch like those of `MemoryFeed.batch` for a worker whose `count` samples cannot be read: of zeros."""
    if isinstance(dataset.train, Arrays):  # never used: arrays can always be read
        return dataset.train.images[:count], dataset.train.labels[:count]
    classes, soft = len(dataset.classes), mixes or dataset.train.labels.ndim == 2
    images = np.zeros((count, dataset.input.channels, size, size), dtype)
    return images, np.zeros((count, classes), np.float32) if soft else np.zeros(count, np.int32)


def eval_batches(
    split: Samples, spec: InputSpec, batch_size: int, workers: Workers = Workers(), block: int = 1
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield this worker's part of an evaluation: every sample of the split goes to exactly one worker, once.

    Each batch is images, float32 [batch_size, C, H, W], their labels (see `Samples`), and their places in the split,
    int64 [batch_size]. Workers take turns at blocks of `block` samples, so that a sample's place in its block is its
    number modulo `block`; `batch_size` is a multiple of it. All workers get equally many batches of one size, so that
    nothing recompiles and no worker waits; the rest is filled with the split's first sample, of place −1.
    """
    blocks = -(-len(split) // block)
    local = (np.arange(workers.rank, blocks, workers.size)[:, None] * block + np.arange(block)).ravel()
    local = local[local < len(split)]  # only the last block can be short
    most = -(-blocks // workers.size) * block
    indices = np.full(-(-most // batch_size) * batch_size, -1)
    indices[: len(local)] = local
    batches = indices.reshape(-1, batch_size)
    rows = np.maximum(batches, 0)
    for places, row, images in zip(batches, rows, split.eval_images(rows, spec), strict=True):
        yield images, split.labels[row], places
