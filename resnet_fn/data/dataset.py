"""What a data set is: two halves of samples, and what a net needs to know about them."""

import dataclasses
from collections.abc import Iterable, Iterator
from importlib import resources
from typing import Protocol

import numpy as np

from resnet_fn.data.augment import prepare


class Samples(Protocol):
    """One half of a data set: arrays in memory, image files, or records."""

    @property
    def labels(self) -> np.ndarray:
        """Classes, int32 [N]."""

    @property
    def channels(self) -> int:
        """Channels of an image."""

    def __len__(self) -> int: ...

    def eval_images(self, batches: Iterable[np.ndarray], dataset: "DataSet", image_size: int) -> Iterator[np.ndarray]:
        """For each array of sample numbers those images as evaluation sees them, float32 [n, C, H, W]."""


@dataclasses.dataclass(frozen=True)
class Split:
    """Images uint8 [N, H, W, C] and their labels int32 [N]."""

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def channels(self) -> int:
        """Channels of an image."""
        return self.images.shape[-1]

    def eval_images(self, batches: Iterable[np.ndarray], dataset: "DataSet", image_size: int) -> Iterator[np.ndarray]:
        """See `Samples`; images are resized to the whole of `image_size`, without a crop."""
        for rows in batches:
            yield prepare(self.images[rows], image_size, dataset.full_scale, *dataset.moments)


@dataclasses.dataclass(frozen=True)
class DataSet:
    """Two splits, and the constants that turn pixels into a net's input.

    Attributes:
        train, test: the splits.
        classes: class names; a label is an index into them.
        full_scale: the pixel value that stands for 1.
        mean, std: per channel, of the training pixels divided by full_scale.
        eval_resize: shorter side of an image file before evaluation's centre crop, pixels.
        threads: threads that decode image files.
        notes: what a user should know about the set, a line each.
    """

    train: Samples
    test: Samples
    classes: tuple[str, ...]
    full_scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]
    eval_resize: int = 256
    threads: int = 1
    notes: tuple[str, ...] = ()

    @property
    def channels(self) -> int:
        """Channels of an image."""
        return self.train.channels

    @property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and std as float32 arrays [C]."""
        return np.array(self.mean, np.float32), np.array(self.std, np.float32)


_DIGITS_TRAIN = 1437  # the first 1,437 train; the last 360, by other writers, test


def load_digits() -> DataSet:
    """The handwritten digits that the package carries (data/DIGITS.md): 8x8, one channel, values 0..16."""
    with resources.files("resnet_fn.data").joinpath("digits.npz").open("rb") as file, np.load(file) as arrays:
        images, labels = arrays["images"][..., np.newaxis], arrays["labels"].astype(np.int32)
    train = Split(images[:_DIGITS_TRAIN], labels[:_DIGITS_TRAIN])
    test = Split(images[_DIGITS_TRAIN:], labels[_DIGITS_TRAIN:])
    # Mean and standard deviation of train.images / 16; a test recomputes them.
    return DataSet(train, test, tuple("0123456789"), 16.0, (0.305386,), (0.375507,))


def check_labels(split: Samples, classes: int, what: str) -> None:
    """Refuse labels outside 0..classes−1 before anything is computed with them.

    Cross-entropy takes label −1 for "no loss" silently, so a wrong label would train as nothing.

    Raises:
        ValueError: names the split, the first such sample and its label.
    """
    wrong = np.flatnonzero((split.labels < 0) | (split.labels >= classes))
    if len(wrong):
        index = int(wrong[0])
        raise ValueError(
            f"{what}: sample {index} has label {int(split.labels[index])}, outside 0..{classes - 1} "
            f"({len(wrong)} such samples); fix the labels or the number of classes"
        )


def check_images(dataset: DataSet) -> None:
    """Refuse arrays of images that are not uint8 [N, H, W, C] with one label each, alike in both splits.

    Image files are checked one by one (`check_files`).

    Raises:
        ValueError: names the split and what it has instead.
    """
    for what, split in (("training set", dataset.train), ("test set", dataset.test)):
        if not isinstance(split, Split):
            continue  # files: looked at one by one where they are read
        images, labels = split.images, split.labels
        if images.dtype != np.uint8 or images.ndim != 4 or not images.size:
            raise ValueError(f"{what}: its images are {images.dtype} {list(images.shape)}; give uint8 [N, H, W, C]")
        if labels.dtype != np.int32 or labels.shape != (len(images),):
            raise ValueError(
                f"{what}: its labels are {labels.dtype} {list(labels.shape)}; give int32 [{len(images)}], one an image"
            )
        if images.shape[-1] != len(dataset.mean):
            raise ValueError(f"{what}: its images have {images.shape[-1]} channels, mean and std {len(dataset.mean)}")


def check_batch(images: np.ndarray, labels: np.ndarray, classes: int, update: int) -> None:
    """Refuse what a pipeline must never hand to the step, before it computes with it.

    Args:
        images: must be float32 [n, C, H, W].
        labels: must be int32 [n] within 0..classes−1, or float32 [n, classes] (soft).
        classes: how many there are.
        update: the update's number, for the message.

    Raises:
        ValueError: names the update and what it has instead.
    """
    if images.dtype != np.float32 or images.ndim != 4:
        raise ValueError(
            f"update {update}: its images are {images.dtype} {list(images.shape)}; give float32 [n, C, H, W]"
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
