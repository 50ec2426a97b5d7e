"""Data without a folder: the digits that come with the package, generated images, and generated photographs."""

from importlib import resources
from pathlib import Path

import numpy as np

from resnet_fn.data.dataset import DataSet, Split
from resnet_fn.data.input_spec import InputSpec
from resnet_fn.data.sources.files import color_spec

_DIGITS_TRAIN = 1437  # the first 1,437 are training images; the last 360, by other writers, test images


def load_digits() -> DataSet:
    """Load 1,437 training and 360 test images of 8x8 pixels, one channel, values 0..16 (data/DIGITS.md)."""
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


def make_synthetic(samples: int, classes: int, image_size: int) -> DataSet:
    """Make colour images, a coarse pattern per class plus noise: learnable, and the same for the same arguments.

    `samples` are training images, equally many of each class; the test split has an eighth, at least one per class.
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
    spec = color_spec("synthetic", names, (0.6,) * 3, (0.19,) * 3, image_size, resize=0)
    return DataSet(split(samples), split(max(samples // 8, classes)), spec)


def photograph(seed: int, width: int = 500, height: int = 375) -> np.ndarray:
    """Draw shapes, edges and grain, as a JPEG of quality 90 about 55 kB, as ImageNet's: uint8 [height, width, 3]."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    picture = np.zeros((height, width, 3), np.float32)
    for cells, strength in ((4, 90), (12, 60), (40, 35), (120, 18)):
        noise = rng.normal(size=(cells * 3 // 4 + 1, cells + 1, 3)).astype(np.float32)
        noise = (noise - noise.min()) / (noise.max() - noise.min()) * 255
        layer = Image.fromarray(noise.astype(np.uint8)).resize((width, height), Image.Resampling.BICUBIC)
        picture += np.asarray(layer, np.float32) * (strength / 255)
    picture += rng.normal(size=(height, width, 1)) * 6
    return picture.clip(0, 255).astype(np.uint8)


def write_folder(root: Path, images: int, classes: int = 4) -> None:
    """Write `images` training photographs in class folders, and a few for validation."""
    from PIL import Image

    for half, count in (("train", images), ("val", classes)):
        for number in range(count):
            folder = root / half / f"class {number % classes}"
            folder.mkdir(parents=True, exist_ok=True)
            picture = photograph(number + (10**6 if half == "val" else 0))
            Image.fromarray(picture).save(folder / f"{number:06d}.JPEG", quality=90)
