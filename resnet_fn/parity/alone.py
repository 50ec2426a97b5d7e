"""Run an optimizer and a loss without a net, on values that are the same in both frameworks."""

import contextlib
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from resnet_fn.parity.layers.record import leaves
from resnet_fn.parity.trace import Arrays, Task, Tree, map_tree, split, with_leaves

UPDATES = 100
# the updates after which the changes of all weights are compared
KEPT = ("update 1", f"update {UPDATES}")
RATES = [0.1 * 0.98**update for update in range(UPDATES)]
# how many random numbers are drawn for an array; a larger array repeats these numbers
_PERIOD = 4093
_TIMES = (1, 10, 100)  # the net's outputs are multiplied by these factors before a loss is computed


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


def changes_alone(
    weights: Arrays,
    gradients: Arrays,
    update: Callable[[Arrays, float], None],
    values: Callable[[], Arrays],
) -> dict[str, Arrays]:
    """Run an optimizer on made-up gradients, and return the changes of the weights.

    `update(gradients, rate)` makes one update, and `values()` returns the current weights. For each
    update in `KEPT`, the result has the weights after this update minus the initial `weights`.
    """
    changes = {}
    for index, (scale, rate) in enumerate(zip(SCALES, RATES, strict=True)):
        update(
            {name: np.asarray(array * np.float32(scale)) for name, array in gradients.items()}, rate
        )
        if (title := f"update {index + 1}") in KEPT:
            changes[title] = {name: array - weights[name] for name, array in values().items()}
    return changes


def losses_alone(
    loss: Callable[[Tree, Tree], np.ndarray],
    outputs: Arrays,
    task: Task,
    like: Tree,
    tensor: Callable[[Any], Any],
) -> dict[str, float]:
    """Return losses of 1, 10 and 100 × `outputs`, for several batch sizes, by title such as "4
    samples, outputs × 10".

    `outputs` must come from the first batch's last micro-batch. The labels of this micro-batch are
    used. `like` has the structure that the loss expects. `tensor` converts an array into a tensor.
    Losses that raise errors are left out.
    """
    labels = split(task.batches[0][1], task.accumulate)[-1]
    sized = (
        leaf for leaf in (*(leaf for _, leaf in leaves(labels)), *outputs.values()) if np.ndim(leaf)
    )
    count, losses = len(next(sized, ())), dict[str, float]()
    for times, samples in itertools.product(_TIMES, (count, 1, 2 * count)):

        def take(leaf: Any, samples: int = samples) -> Any:
            fits = np.ndim(leaf) and len(leaf) == count
            return np.concatenate([leaf, leaf])[:samples] if fits else leaf

        larger = {name: take(value) * np.float32(times) for name, value in outputs.items()}
        with contextlib.suppress(Exception):
            value = loss(with_leaves(like, larger, tensor), map_tree(take, labels))
            losses[f"{samples} samples, outputs × {times}"] = value.item()
    return losses
