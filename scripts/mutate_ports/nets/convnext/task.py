"""Images of five classes."""

SETTINGS = {"optimizer": "adamw", "nesterov": False, "learning_rate": 1e-3}


def batch(rng):
    return _images(rng, 6, 16, 16)


def other(rng):
    return _images(rng, int(rng.integers(1, 6)), *map(int, rng.integers(10, 20, 2)))


def _images(rng, count, height, width):
    images = rng.normal(size=(count, 3, height, width)).astype("float32")
    return images, rng.integers(0, 5, count).astype("int32")
