"""Numbers and categories of a click; the label is whether it happened, smoothed."""

import numpy as np

SETTINGS = {"learning_rate": 0.05}
SIZES = (7, 5, 9)


def batch(rng):
    return _clicks(rng, 12)


def other(rng):
    return _clicks(rng, int(rng.integers(2, 16)))


def _clicks(rng, count):
    numbers = rng.lognormal(1.0, 1.0, (count, 4)).astype("float32")
    kinds = np.stack([rng.integers(0, size, count) for size in SIZES], -1).astype("int32")
    clicked = rng.integers(0, 2, (count, 1))
    return (numbers, kinds), (0.9 * clicked + 0.05).astype("float32")
