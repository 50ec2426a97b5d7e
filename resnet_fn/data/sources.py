"""Data sets as arrays in memory, with what a net needs to know about them."""

import dataclasses
from importlib import resources

import numpy as np


@dataclasses.dataclass(frozen=True)
class Split:
    """Images uint8 [N, H, W, C] and their labels int32 [N]."""

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


@dataclasses.dataclass(frozen=True)
class DataSet:
    """Two splits, and the constants that turn pixels into a net's input.

    Attributes:
        train, test: the splits.
        classes: class names; a label is an index into them.
        full_scale: the pixel value that stands for 1.
        mean, std: per channel, of the training pixels divided by full_scale.
    """

    train: Split
    test: Split
    classes: tuple[str, ...]
    full_scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def channels(self) -> int:
        """Channels of an image."""
        return self.train.images.shape[-1]


_DIGITS_TRAIN = 1437  # the first 1,437 train; the last 360, by other writers, test


def load_digits() -> DataSet:
    """The handwritten digits that the package carries (data/DIGITS.md): 8x8, one channel, values 0..16."""
    with resources.files("resnet_fn.data").joinpath("digits.npz").open("rb") as file, np.load(file) as arrays:
        images, labels = arrays["images"][..., np.newaxis], arrays["labels"].astype(np.int32)
    train = Split(images[:_DIGITS_TRAIN], labels[:_DIGITS_TRAIN])
    test = Split(images[_DIGITS_TRAIN:], labels[_DIGITS_TRAIN:])
    # Mean and standard deviation of train.images / 16; a test recomputes them.
    return DataSet(train, test, tuple("0123456789"), 16.0, (0.305386,), (0.375507,))


def load_dataset(name: str) -> DataSet:
    """Load a data set by its recipe's name."""
    return {"digits": load_digits}[name]()


def check_labels(split: Split, classes: int, what: str) -> None:
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
            f"({len(wrong)} such samples); mend the labels or the number of classes"
        )
