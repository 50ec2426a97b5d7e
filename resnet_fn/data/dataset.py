"""A data set has two splits of samples and describes a net's input; checks and evaluation batches are here, too."""

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
    """Return the errors of all ranks as one text, the same everywhere; each rank calls this with its error or None."""
    texts = gather_texts(str(error or ""), workers)
    return "; ".join(f"rank {rank}: {text}" if workers.size > 1 else text for rank, text in enumerate(texts) if text)


class Samples(Protocol):
    """This is the interface of a split of a data set: arrays in memory, image files, or records."""

    @property
    def labels(self) -> np.ndarray:
        """Return labels, int32 [N]; with several classes an image float32 [N, classes], 1 for each class it has."""

    def __len__(self) -> int: ...

    def eval_images(self, batches: Iterable[np.ndarray], spec: InputSpec) -> Iterator[np.ndarray]:
        """Yield for each array of sample numbers, int [n], the evaluation's images, float32 [n, C, H, W]."""


@dataclasses.dataclass(frozen=True)
class Split:
    """A split in memory has images, uint8 [N, H, W, C], and labels, int32 [N]."""

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def eval_images(self, batches: Iterable[np.ndarray], spec: InputSpec) -> Iterator[np.ndarray]:
        """Yield images as `Samples.eval_images` does; they are resized as a whole, without a crop."""
        for rows in batches:
            yield prepare(self.images[rows], spec.image_size, spec)


@dataclasses.dataclass(frozen=True)
class Arrays(Split):
    """Inputs of any shape and dtype, which a net gets unchanged, and their targets (for `resnet_fn.fit`)."""

    def eval_images(self, batches: Iterable[np.ndarray], spec: InputSpec) -> Iterator[np.ndarray]:
        """See `Samples`."""
        for rows in batches:
            yield self.images[rows]


@dataclasses.dataclass(frozen=True)
class DataSet:
    """A data set has a training and a validation split, and the input of a net that is trained on it."""

    train: Samples
    test: Samples
    input: InputSpec
    notes: tuple[str, ...] = ()  # lines that the run prints
    # Image files that were left out, with their errors (see `sources.scan`); None: none are skipped.
    bad_files: tuple[str, ...] | None = None
    held_out: tuple[str, ...] = ()  # names of validation files split off the training folder; see `split_off`
    digest: str = ""  # SHA-256 of arrays that a caller of `resnet_fn.fit` passes; "" for other sets

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the class names, in the order of the labels; () if the targets passed to `fit` are no classes."""
        return self.input.classes


def check_labels(split: Samples, classes: int, what: str) -> None:
    """Raise a ValueError if a label is outside 0..classes−1: cross-entropy silently ignores samples of label −1."""
    if split.labels.ndim == 2:
        return  # these labels [N, classes] were made from the class names
    wrong = np.flatnonzero((split.labels < 0) | (split.labels >= classes))
    if len(wrong):
        index = int(wrong[0])
        raise ValueError(
            f"{what}: sample {index} has label {int(split.labels[index])}, outside 0..{classes - 1} "
            f"({len(wrong)} such samples); fix the labels or the number of classes"
        )


def blank_batch(dataset: DataSet, count: int, size: int, mixes: bool, dtype: str = "float32") -> Batch:
    """Make a batch of zeros, shaped as those of `MemoryFeed.batch`, for a worker whose samples cannot be read."""
    if isinstance(dataset.train, Arrays):  # this batch is never used: arrays can always be read
        return dataset.train.images[:count], dataset.train.labels[:count]
    classes, soft = len(dataset.classes), mixes or dataset.train.labels.ndim == 2
    images = np.zeros((count, dataset.input.channels, size, size), dtype)
    return images, np.zeros((count, classes), np.float32) if soft else np.zeros(count, np.int32)


def eval_batches(
    split: Samples, spec: InputSpec, batch_size: int, workers: Workers = Workers(), block: int = 1
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield this worker's batches of an evaluation, in which each sample of the split goes to exactly one worker.

    A batch is (images float32 [batch_size, C, H, W], labels as in `Samples`, sample numbers in the split, int64
    [batch_size]). Workers take turns at blocks of `block` samples; `batch_size` is a multiple of `block`, so that a
    sample's place in its block is its number modulo `block`. All workers get equally many batches of one size, so that
    nothing recompiles and no worker waits; they are filled up with the split's first sample, with the number −1.
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
