"""Sentences with a tag for each token; padding has the label -100."""

import numpy as np

SETTINGS = {"learning_rate": 0.1}


def batch(rng):
    return _sentences(rng, 5, 8)


def other(rng):
    return _sentences(rng, int(rng.integers(1, 6)), int(rng.integers(4, 12)))


def _sentences(rng, count, length):
    sizes = rng.integers(2, length + 1, count)
    sizes[0] = length
    mask = np.arange(length) < sizes[:, None]
    ids = (rng.integers(1, 15, (count, length)) * mask).astype("int32")
    tags = np.where(mask, rng.integers(0, 4, (count, length)), -100).astype("int32")
    return {"ids": ids, "mask": mask}, tags
