"""Short signals that are compressed to codes."""

SETTINGS = {"learning_rate": 0.02}


def batch(rng):
    return _signals(rng, 4, 16)


def other(rng):
    return _signals(rng, int(rng.integers(1, 5)), 4 * int(rng.integers(2, 7)))


def _signals(rng, count, length):
    signals = rng.normal(size=(count, 2, length)).astype("float32")
    return signals, signals
