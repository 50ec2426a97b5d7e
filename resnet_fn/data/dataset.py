"""This module defines data sets and their splits, checks labels, and makes batches for
evaluation.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np

from resnet_fn.data.images import prepare
from resnet_fn.data.input_spec import InputSpec
from resnet_fn.data.order import Batch
from resnet_fn.runtime.workers import Workers


class BadSampleError(ValueError):
    """This error is raised if a sample cannot be read or decoded."""


class Samples(Protocol):
    """This protocol is the interface of a split, whose samples are in memory or in files."""

    @property
    def labels(self) -> np.ndarray:
        """Return labels, int32 [N], or zeros and ones, float32 [N, classes], if images can have
        several classes.
        """

    def __len__(self) -> int: ...

    def eval_images(self, batches: Iterable[np.ndarray], spec: InputSpec) -> Iterator[np.ndarray]:
        """Yield images for evaluation, float32 [n, C, H, W], for each array of sample numbers, int
        [n].
        """


@dataclasses.dataclass(frozen=True)
class Split:
    """Holds the images, uint8 [N, H, W, C], and labels, int32 [N], of a split in memory."""

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def eval_images(self, batches: Iterable[np.ndarray], spec: InputSpec) -> Iterator[np.ndarray]:
        """Yield normalised images, which are resized without a crop."""
        return (prepare(self.images[rows], spec.image_size, spec) for rows in batches)


@dataclasses.dataclass(frozen=True)
class Arrays(Split):
    """Holds inputs and targets that a caller passes to `resnet_fn.fit`.

    The net gets the inputs unchanged.
    """

    def eval_images(self, batches: Iterable[np.ndarray], spec: InputSpec) -> Iterator[np.ndarray]:
        """Yield the unchanged inputs for each array of sample numbers."""
        return (self.images[rows] for rows in batches)


@dataclasses.dataclass(frozen=True)
class DataSet:
    """Holds a training split, a validation split, and the description of a net's input."""

    train: Samples
    test: Samples
    input: InputSpec
    notes: tuple[str, ...] = ()  # lines that the run prints
    # One line "path, tab, fault" for each image file that was left out. None if bad files are not
    # skipped.
    bad_files: tuple[str, ...] | None = None
    is_split: bool = False  # whether `test` was split off the training files
    validates: bool = True  # whether `test` is the validation split, not other images to score
    digest: str = ""  # SHA-256 of the arrays passed to `resnet_fn.fit`, or "" for other data sets

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the class names in the order of the labels, or () if the targets are not
        classes.
        """
        return self.input.classes


def check_labels(split: Samples, classes: int, name: str) -> None:
    """Raise ValueError if a label is outside 0..classes−1.

    Cross-entropy silently ignores label −1.
    """
    if split.labels.ndim == 2:
        return  # labels [N, classes] are made from the class names and cannot be outside
    wrong = np.flatnonzero((split.labels < 0) | (split.labels >= classes))
    if len(wrong):
        index = int(wrong[0])
        raise ValueError(
            f"{name}: sample {index} has label {int(split.labels[index])}, outside "
            f"0..{classes - 1} (such samples: {len(wrong)}); "
            "fix the labels or the number of classes"
        )


def blank_batch(
    dataset: DataSet, count: int, size: int, mixes: bool, dtype: str = "float32"
) -> Batch:
    """Return a placeholder batch with the shapes of a feed's batch, for a worker whose samples
    cannot be read.
    """
    # this batch is never used, because arrays can always be read
    if isinstance(dataset.train, Arrays):
        return dataset.train.images[:count], dataset.train.labels[:count]
    classes = len(dataset.classes)
    soft = mixes or dataset.train.labels.ndim == 2
    images = np.zeros((count, dataset.input.channels, size, size), dtype)
    return images, np.zeros((count, classes), np.float32) if soft else np.zeros(count, np.int32)


def eval_batches(
    split: Samples, spec: InputSpec, batch_size: int, workers: Workers = Workers(), block: int = 1
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield this worker's batches of an evaluation: images, labels, and sample numbers, int64
    [batch_size].

    Worker r of W gets blocks r, r + W, … of `block` samples. `batch_size` must be a multiple of
    `block`, so that batches hold whole blocks. All workers get equally many batches. Free places
    hold sample 0 and the number −1.
    """
    blocks = -(-len(split) // block)
    local = (
        np.arange(workers.rank, blocks, workers.size)[:, None] * block + np.arange(block)
    ).ravel()
    local = local[local < len(split)]  # only the last block can be short
    most = -(-blocks // workers.size) * block
    indices = np.full(-(-most // batch_size) * batch_size, -1)
    indices[: len(local)] = local
    batches = indices.reshape(-1, batch_size)
    rows = np.maximum(batches, 0)
    for numbers, row, images in zip(batches, rows, split.eval_images(rows, spec), strict=True):
        yield images, split.labels[row], numbers
