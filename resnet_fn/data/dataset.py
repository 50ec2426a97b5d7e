"""What a data set is: two halves of samples, and what a net needs to know about them."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np

from resnet_fn.data.images import prepare
from resnet_fn.data.input_spec import InputSpec
from resnet_fn.runtime.workers import Workers


class BadSampleError(ValueError):
    """A sample cannot be read or decoded; names its file and the fix."""


class Samples(Protocol):
    """One half of a data set: arrays in memory, image files, or records."""

    @property
    def labels(self) -> np.ndarray:
        """Classes, int32 [N]; where an image has any number of them float32 [N, classes], 1 for each that it has."""

    def __len__(self) -> int: ...

    def eval_images(self, batches: Iterable[np.ndarray], spec: InputSpec) -> Iterator[np.ndarray]:
        """For each array of sample numbers those images as evaluation sees them, float32 [n, C, H, W]."""


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
class DataSet:
    """Two splits, and what a net that is trained on them must be fed.

    Attributes:
        train, test: the splits.
        input: classes and images.
        notes: what a user should know about the set, a line each.
        bad_files: image files that were left out, with what is wrong with them; see `sources.scan`.
        held_out: the names of the test files where they were split off the training folder; see `split_off`.
    """

    train: Samples
    test: Samples
    input: InputSpec
    notes: tuple[str, ...] = ()
    bad_files: tuple[str, ...] = ()
    held_out: tuple[str, ...] = ()

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names; a label is an index into them."""
        return self.input.classes


def check_labels(split: Samples, classes: int, what: str) -> None:
    """Refuse labels outside 0..classes−1 before anything is computed with them.

    Cross-entropy takes label −1 for "no loss" silently, so a wrong label would train as nothing.

    Raises:
        ValueError: names the split, the first such sample and its label.
    """
    if split.labels.ndim == 2:
        return  # made of the classes' own names
    wrong = np.flatnonzero((split.labels < 0) | (split.labels >= classes))
    if len(wrong):
        index = int(wrong[0])
        raise ValueError(
            f"{what}: sample {index} has label {int(split.labels[index])}, outside 0..{classes - 1} "
            f"({len(wrong)} such samples); fix the labels or the number of classes"
        )


def check_images(dataset: DataSet) -> None:
    """Refuse arrays of images that are not uint8 [N, H, W, C] with one label each, alike in both splits.

    Raises:
        ValueError: names the split and what it has instead.
    """
    for what, split in (("training set", dataset.train), ("test set", dataset.test)):
        if not isinstance(split, Split):
            continue  # files are checked one by one (`sources.scan`)
        images, labels = split.images, split.labels
        if images.dtype != np.uint8 or images.ndim != 4 or not images.size:
            raise ValueError(f"{what}: its images are {images.dtype} {list(images.shape)}; give uint8 [N, H, W, C]")
        if labels.dtype != np.int32 or labels.shape != (len(images),):
            raise ValueError(
                f"{what}: its labels are {labels.dtype} {list(labels.shape)}; give int32 [{len(images)}], one an image"
            )
        channels, wanted = images.shape[-1], dataset.input.channels
        if channels != wanted:
            raise ValueError(f"{what}: its images have {channels} channels, mean and std {wanted}")


def check_batch(images: np.ndarray, labels: np.ndarray, classes: int, update: int, dtype: str = "float32") -> None:
    """Refuse what a pipeline must never hand to the step, before it computes with it.

    Args:
        images: must be `dtype` [n, C, H, W].
        labels: must be int32 [n] within 0..classes−1, or float32 [n, classes] (soft, or several an image).
        update: its number, for the message.

    Raises:
        ValueError: names the update and what it has instead.
    """
    if images.dtype != dtype or images.ndim != 4:
        raise ValueError(
            f"update {update}: its images are {images.dtype} {list(images.shape)}; give {dtype} [n, C, H, W]"
        )
    soft = labels.ndim == 2
    wanted = (np.float32, (len(images), classes)) if soft else (np.int32, (len(images),))
    if (labels.dtype, labels.shape) != wanted:
        raise ValueError(
            f"update {update}: its labels are {labels.dtype} {list(labels.shape)}; give int32 [{len(images)}] "
            f"or float32 [{len(images)}, {classes}]"
        )
    if not soft and (labels.min() < 0 or labels.max() >= classes):
        wrong = labels[(labels < 0) | (labels >= classes)][0]
        raise ValueError(f"update {update}: it has label {wrong}, outside 0..{classes - 1}; fix the labels")


def eval_batches(
    split: Samples, spec: InputSpec, batch_size: int, workers: Workers = Workers(), block: int = 1
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """This worker's part of an evaluation: every sample of the split goes to exactly one worker, once.

    Workers take turns at blocks of `block` samples; `batch_size` is a multiple of it. So a sample's place in its
    block is its number modulo `block`, whatever the number of workers and the batch size.

    All batches have the same size and all workers get as many, so that nothing recompiles and nobody waits for ever;
    what is missing at the end is filled with the split's first sample and marked.

    Yields:
        images float32 [batch_size, C, H, W], their labels (see `Samples`), indices int64 [batch_size]: the samples'
        places in the split, −1 where filled.
    """
    blocks = -(-len(split) // block)
    own = (np.arange(workers.rank, blocks, workers.size)[:, None] * block + np.arange(block)).ravel()
    own = own[own < len(split)]  # only the last block of all can be short
    most = -(-blocks // workers.size) * block
    indices = np.full(-(-most // batch_size) * batch_size, -1)
    indices[: len(own)] = own
    batches = indices.reshape(-1, batch_size)
    rows = np.maximum(batches, 0)
    for places, row, images in zip(batches, rows, split.eval_images(rows, spec), strict=True):
        yield images, split.labels[row], places
