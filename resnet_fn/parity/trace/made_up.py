"""Random weights and gradients on which the optimizer alone is compared."""

from collections.abc import Mapping

import numpy as np

from resnet_fn.parity.trace.tree import Arrays

UPDATES = 100

# the updates after which the changes of all weights are compared
KEPT = (1, UPDATES)

RATES = [0.1 * 0.98**update for update in range(UPDATES)]

# how many random numbers are drawn for an array; a larger array repeats these numbers
_PERIOD = 4093


def _draw_scales() -> list[float]:
    """Return, for each update, the factor by which all gradients are multiplied."""
    rng = np.random.default_rng(0)
    updates_of_size = [20, 60, UPDATES - 80]
    sizes = np.repeat([1, 0.1, 1e-3], updates_of_size)
    factors = rng.uniform(0.5, 1.5, UPDATES)
    signs = rng.choice([1, 1, 1, -1], UPDATES)
    scales = factors * signs * sizes
    scales[7::10] = 0
    scales[0] = 1
    return [float(np.float32(scale)) for scale in scales]


SCALES = _draw_scales()


def made_up(shapes: Mapping[str, tuple[int, ...]]) -> tuple[Arrays, Arrays]:
    """Return random float32 weights and gradients, which depend only on the names and shapes in
    `shapes`.
    """
    weights: Arrays = {}
    gradients: Arrays = {}
    for name, shape in shapes.items():
        seed = list(name.encode())
        rng = np.random.default_rng(seed)
        of_weights = _drawn(rng, -3, 2, 0.0)
        of_gradients = _drawn(rng, -9, 0, 0.05)
        weights[name] = np.resize(of_weights, shape)
        gradients[name] = np.resize(of_gradients, shape)
    return weights, gradients


def _drawn(
    rng: np.random.Generator, smallest: int, largest: int, share_of_zeros: float
) -> np.ndarray:
    """Return random float32 numbers of either sign, of sizes 10^smallest to 10^largest.

    Numbers of very different sizes show a wrong eps or weight decay.
    """
    sizes = 10 ** rng.uniform(smallest, largest, _PERIOD)
    signs = rng.choice([-1, 1], _PERIOD)
    drawn = sizes * signs
    is_zero = rng.random(_PERIOD) < share_of_zeros
    drawn[is_zero] = 0
    return drawn.astype(np.float32)
