"""Vectors, and the noise that the sampled code takes."""

SETTINGS = {"optimizer": "adamw", "nesterov": False, "learning_rate": 1e-3}


def batch(rng):
    return _vectors(rng, 8)


def other(rng):
    return _vectors(rng, int(rng.integers(1, 9)))


def _vectors(rng, count):
    vectors = rng.random(size=(count, 20)).astype("float32")
    return (vectors, rng.normal(size=(count, 4)).astype("float32")), vectors
