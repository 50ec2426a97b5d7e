"""Images of four classes."""

SETTINGS = {"learning_rate": 0.02}
CLASSES = 4


def batch(rng):
    return _images(rng, 6, 16, 16)


def other(rng):
    return _images(
        rng, int(rng.integers(2, 6)), int(rng.integers(14, 20)), 16 + 2 * int(rng.integers(3))
    )


def _images(rng, count, height, width):
    images = rng.normal(size=(count, 3, height, width)).astype("float32")
    return images, rng.integers(0, CLASSES, count).astype("int32")
