"""Sentences of token ids with padding, of three classes."""

import numpy as np

SETTINGS = {"optimizer": "adamw", "nesterov": False, "learning_rate": 1e-3}
WORDS = 20


def batch(rng):
    return _sentences(rng, 6, 10)


def other(rng):
    return _sentences(rng, int(rng.integers(1, 5)), int(rng.integers(4, 16)))


def _sentences(rng, count, length):
    sizes = rng.integers(2, length + 1, count)
    mask = np.arange(length) < sizes[:, None]
    ids = (rng.integers(1, WORDS, (count, length)) * mask).astype("int32")
    return (ids, mask), rng.integers(0, 3, count).astype("int32")
