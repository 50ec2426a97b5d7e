"""Sound: a class for each sample."""

SETTINGS = {"learning_rate": 0.05}


def batch(rng):
    return _sound(rng, 3, 32)


def other(rng):
    return _sound(rng, int(rng.integers(1, 4)), int(rng.integers(16, 40)))


def _sound(rng, count, length):
    sound = rng.normal(size=(count, 1, length)).astype("float32")
    return sound, rng.integers(0, 6, (count, length)).astype("int32")
