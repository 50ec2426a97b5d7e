"""Run an optimizer and a loss without a net, on values that are the same in both frameworks."""

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from resnet_fn.parity.trace.made_up import KEPT, RATES, SCALES
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.returned import with_leaves
from resnet_fn.parity.trace.stages import ArrayId
from resnet_fn.parity.trace.tree import Arrays, Tree, leaves, map_tree, split

_TIMES = (1, 10, 100)  # the net's outputs are multiplied by these factors before a loss is computed


def changes_alone(
    weights: Arrays,
    gradients: Arrays,
    update: Callable[[Arrays, float], None],
    values: Callable[[], Arrays],
) -> dict[int, Arrays]:
    """Run an optimizer on made-up gradients, and return the changes of the weights.

    `update(gradients, rate)` makes one update, and `values()` returns the current weights. For each
    update in `KEPT`, the result has the weights after this update minus the initial `weights`.
    """
    changes = {}
    for index, (scale, rate) in enumerate(zip(SCALES, RATES, strict=True)):
        factor = np.float32(scale)
        scaled = {name: np.asarray(array * factor) for name, array in gradients.items()}
        update(scaled, rate)
        count = index + 1
        if count in KEPT:
            now = values()
            changes[count] = {name: array - weights[name] for name, array in now.items()}
    return changes


def _times(factor: np.float32, output: np.ndarray) -> np.ndarray:
    """Return an output of type float times a factor, in which masks of `finfo.min` stay finite."""
    if output.dtype.kind != "f":
        return output
    with np.errstate(over="ignore"):
        larger: np.ndarray = output * factor
    beyond = np.isinf(larger) & np.isfinite(output)
    if not beyond.any():
        return larger
    largest = np.finfo(larger.dtype).max
    return np.where(beyond, np.copysign(largest, larger), larger)


def losses_alone(
    loss: Callable[[Tree, Tree], np.ndarray],
    outputs: Arrays,
    plan: Plan,
    like: Tree,
    tensor: Callable[[Any], Any],
) -> dict[ArrayId, float]:
    """Return losses of 1, 10 and 100 × `outputs`, for several batch sizes.

    `outputs` must come from the first batch's last micro-batch. The labels of this micro-batch are
    used. `like` has the structure that the loss expects. `tensor` converts an array into a tensor.
    Losses that raise errors are left out.
    """
    labels = split(plan.batches[0][1], plan.accumulate)[-1]
    of_labels = [leaf for _, leaf in leaves(labels)]
    sized = (leaf for leaf in (*of_labels, *outputs.values()) if np.ndim(leaf))
    count = len(next(sized, ()))
    losses: dict[ArrayId, float] = {}
    for times, samples in itertools.product(_TIMES, (count, 1, 2 * count)):

        def take(leaf: Any, samples: int = samples) -> Any:
            fits = np.ndim(leaf) and len(leaf) == count
            return np.concatenate([leaf, leaf])[:samples] if fits else leaf

        factor = np.float32(times)
        larger = {name: _times(factor, take(value)) for name, value in outputs.items()}
        with contextlib.suppress(Exception):
            example = with_leaves(like, larger, tensor)
            value = loss(example, map_tree(take, labels))
            losses[ArrayId(samples=samples, factor=times)] = value.item()
    return losses
