"""Pairs of views of one image, without labels but the class of a probe."""

SETTINGS = {"learning_rate": 0.05}


def batch(rng):
    return _views(rng, 8)


def other(rng):
    return _views(rng, int(rng.integers(2, 8)))


def _views(rng, count):
    first = rng.normal(size=(count, 24)).astype("float32")
    second = (first + 0.3 * rng.normal(size=first.shape)).astype("float32")
    return (first, second), rng.integers(0, 3, count).astype("int32")
