"""This module provides the two data sets that need no folder: handwritten digits and generated
images.
"""

from importlib import resources

import numpy as np

from resnet_fn.data.dataset import DataSet, Split
from resnet_fn.data.input_spec import InputSpec
from resnet_fn.data.sources.files import color_spec

_DIGITS_TRAIN = 1437  # the other 360 images are by other writers


def load_digits() -> DataSet:
    """Load 1,437 training and 360 test images of digits, with 8x8 pixels and values 0..16 (see
    data/DIGITS.md).
    """
    with (
        resources.files("resnet_fn.data").joinpath("digits.npz").open("rb") as file,
        np.load(file) as arrays,
    ):
        images = arrays["images"][..., np.newaxis]
        labels = arrays["labels"].astype(np.int32)
    train = Split(images[:_DIGITS_TRAIN], labels[:_DIGITS_TRAIN])
    test = Split(images[_DIGITS_TRAIN:], labels[_DIGITS_TRAIN:])
    spec = InputSpec(
        name="digits",
        classes=tuple("0123456789"),
        channels=1,
        image_size=8,
        full_scale=16.0,
        mean=(0.305386,),  # of train.images / 16; a test recomputes both
        std=(0.375507,),
    )
    return DataSet(train, test, spec)


def make_synthetic(samples: int, classes: int, image_size: int) -> DataSet:
    """Generate `samples` training images, each a class's pattern plus noise.

    Equal arguments give equal images.
    """
    rng = np.random.default_rng([0, samples, classes, image_size])
    coarse = rng.integers(48, 208, (classes, 4, 4, 3), dtype=np.uint8)
    cells = np.arange(image_size) * 4 // image_size
    patterns = coarse[:, cells][:, :, cells]

    def split(count: int) -> Split:
        labels = (np.arange(count) % classes).astype(np.int32)
        noise = rng.integers(0, 48, (count, image_size, image_size, 3), dtype=np.uint8)
        return Split(patterns[labels] + noise, labels)

    names = tuple(f"pattern {number}" for number in range(classes))
    spec = color_spec("synthetic", names, (0.6,) * 3, (0.19,) * 3)
    return DataSet(split(samples), split(max(samples // 8, classes)), spec)
