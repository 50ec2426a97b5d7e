"""The handwritten digits that the package carries."""

from importlib import resources

import numpy as np

from resnet_fn.data.dataset import DataSet, Split
from resnet_fn.data.input_spec import InputSpec

_DIGITS_TRAIN = 1437  # the first 1,437 train; the last 360, by other writers, test


def load_digits() -> DataSet:
    """1,437 training and 360 test images of 8x8 pixels, one channel, values 0..16 (data/DIGITS.md)."""
    with resources.files("resnet_fn.data").joinpath("digits.npz").open("rb") as file, np.load(file) as arrays:
        images, labels = arrays["images"][..., np.newaxis], arrays["labels"].astype(np.int32)
    train = Split(images[:_DIGITS_TRAIN], labels[:_DIGITS_TRAIN])
    test = Split(images[_DIGITS_TRAIN:], labels[_DIGITS_TRAIN:])
    # Mean and standard deviation of train.images / 16; a test recomputes them.
    spec = InputSpec(
        name="digits",
        classes=tuple("0123456789"),
        channels=1,
        image_size=8,
        full_scale=16.0,
        mean=(0.305386,),
        std=(0.375507,),
    )
    return DataSet(train, test, spec)
