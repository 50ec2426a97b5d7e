"""A generated data set of any size: for benchmarks and tests, where the pictures do not matter."""

import numpy as np

from resnet_fn.data.dataset import DataSet, Split
from resnet_fn.data.input_spec import InputSpec


def make_synthetic(samples: int, classes: int, image_size: int, seed: int = 0) -> DataSet:
    """Colour images of one coarse pattern per class plus noise: learnable, and the same for the same arguments.

    Args:
        samples: training images; the test split has an eighth as many, at least one per class.
        classes: classes, drawn evenly.
        image_size: height and width, pixels.
        seed: of patterns and noise.
    """
    rng = np.random.default_rng([seed, samples, classes, image_size])
    coarse = rng.integers(48, 208, (classes, 4, 4, 3), dtype=np.uint8)
    cells = np.arange(image_size) * 4 // image_size
    patterns = coarse[:, cells][:, :, cells]

    def split(count: int) -> Split:
        labels = (np.arange(count) % classes).astype(np.int32)
        noise = rng.integers(0, 48, (count, image_size, image_size, 3), dtype=np.uint8)
        return Split(patterns[labels] + noise, labels)

    names = tuple(f"pattern {number}" for number in range(classes))
    spec = InputSpec(
        name="synthetic",
        classes=names,
        channels=3,
        image_size=image_size,
        full_scale=255.0,
        mean=(0.6, 0.6, 0.6),
        std=(0.19, 0.19, 0.19),
    )
    return DataSet(split(samples), split(max(samples // 8, classes)), spec)
