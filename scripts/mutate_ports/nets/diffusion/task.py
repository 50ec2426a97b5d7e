"""Images, noise and the number of a diffusion step; the label is the noise."""

SETTINGS = {"optimizer": "adamw", "nesterov": False, "learning_rate": 1e-3}


def batch(rng):
    return _noisy(rng, 4, 8, 8)


def other(rng):
    return _noisy(
        rng, int(rng.integers(1, 5)), 2 * int(rng.integers(2, 6)), 2 * int(rng.integers(2, 6))
    )


def _noisy(rng, count, height, width):
    images, noise = rng.normal(size=(2, count, 2, height, width)).astype("float32")
    return (images, noise, rng.integers(0, 50, count).astype("int32")), noise
