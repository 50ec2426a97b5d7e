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
    sizes = np.repeat([1, 0.1, 1e-3], [20, 60, UPDATES - 80])
    scales = rng.uniform(0.5, 1.5, UPDATES) * rng.choice([1, 1, 1, -1], UPDATES) * sizes
    scales[[0, *range(7, UPDATES, 10)]] = [1, *[0] * len(range(7, UPDATES, 10))]
    return [float(np.float32(scale)) for scale in scales]


SCALES = _draw_scales()


def made_up(shapes: Mapping[str, tuple[int, ...]]) -> tuple[Arrays, Arrays]:
    """Return random float32 weights and gradients, which depend only on the names and shapes in
    `shapes`.
    """
    weights: Arrays = {}
    gradients: Arrays = {}
    for name, shape in shapes.items():
        rng = np.random.default_rng(list(name.encode()))
        # Numbers of very different sizes show a wrong eps or weight decay.
        for arrays, smallest, largest, zeros in ((weights, -3, 2, 0.0), (gradients, -9, 0, 0.05)):
            drawn = 10 ** rng.uniform(smallest, largest, _PERIOD) * rng.choice([-1, 1], _PERIOD)
            drawn[rng.random(_PERIOD) < zeros] = 0
            arrays[name] = np.resize(drawn.astype(np.float32), shape)
    return weights, gradients
