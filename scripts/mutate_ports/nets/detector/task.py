"""Images, with the class and box of each anchor; class 0 is background."""

import numpy as np

SETTINGS = {"learning_rate": 0.02}


def batch(rng):
    return _scenes(rng, 4, 16, 16)


def other(rng):
    return _scenes(rng, int(rng.integers(1, 5)), 16, 16)


def _scenes(rng, count, height, width):
    images = rng.normal(size=(count, 3, height, width)).astype("float32")
    anchors = height // 4 * (width // 4)
    kinds = (rng.integers(0, 4, (count, anchors)) * (rng.random((count, anchors)) < 0.4)).astype(
        "int32"
    )
    kinds[:, 0] = 1
    boxes = np.concatenate(
        [rng.uniform(0, 8, (count, anchors, 2)), rng.uniform(8, 16, (count, anchors, 2))], -1
    )
    return images, {"kinds": kinds, "boxes": boxes.astype("float32")}
