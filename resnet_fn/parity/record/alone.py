"""Run an optimizer and a loss without a net, on values that are the same in both frameworks."""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from resnet_fn.config.wording import first_few, words_of
from resnet_fn.parity.record.side import Side
from resnet_fn.parity.trace.data import Run
from resnet_fn.parity.trace.like import Like
from resnet_fn.parity.trace.made_up import KEPT, RATES, SCALES
from resnet_fn.parity.trace.packed import packed_names
from resnet_fn.parity.trace.returned import with_leaves
from resnet_fn.parity.trace.stages import ArrayId
from resnet_fn.parity.trace.tree import Arrays, leaves, map_tree, paired_outputs, split

_TIMES = (1, 10, 100)  # the net's outputs are multiplied by these factors before a loss is computed


def changes_alone(
    weights: Arrays,
    gradients: Arrays,
    update: Callable[[Arrays, float], None],
    value: Callable[[str], np.ndarray],
) -> dict[int, Arrays]:
    """Run an optimizer on made-up gradients, and return the changes of the weights.

    `update(gradients, rate)` makes one update, and `value(name)` returns a current weight. For each
    update in `KEPT`, the result has the weights after this update minus the initial `weights`.
    """
    changes = {}
    for index, (scale, rate) in enumerate(zip(SCALES, RATES, strict=True)):
        factor = np.float32(scale)
        scaled = {name: np.asarray(array * factor) for name, array in gradients.items()}
        update(scaled, rate)
        count = index + 1
        if count in KEPT:
            changes[count] = {name: value(name) - first for name, first in weights.items()}
    return changes


def _times(factor: np.float32, output: np.ndarray) -> np.ndarray:
    """Return an output of type float times a factor, in which masks of `finfo.min` stay finite."""
    if output.dtype.kind != "f":
        return output
    with np.errstate(over="ignore"):
        larger = np.asarray(output * factor)  # of a single number, NumPy makes no array
    beyond = np.isinf(larger) & np.isfinite(output)
    if not beyond.any():
        return larger
    largest = np.finfo(larger.dtype).max
    return np.where(beyond, np.copysign(largest, larger), larger)


class LossesAlone(NamedTuple):
    """Losses of other outputs than the net's, and what could not be computed of a reference's."""

    losses: dict[ArrayId, float]
    limit: str = ""  # "the reference's fails on 1 samples, outputs × 10 (…)"; empty: nothing


def losses_alone(side: Side, run: Run, like: Like | None) -> LossesAlone:
    """Compute the loss of 1, 10 and 100 × the outputs of a micro-batch, which are equal on both
    sides, for several batch sizes.

    The outputs are those of the reference, or of the side itself if `like` is None.
    """
    example = side.loss_example()
    if example is None:
        return LossesAlone({})
    outputs = _equal_outputs(side, run, like, example)
    if not outputs:
        return LossesAlone({})
    if packed_names(outputs):  # there is no axis of samples to take some of
        return LossesAlone({}, "not compared, for the reference returns packed sequences")
    _, labels = side.plan.batches[0]
    labels = split(labels, side.plan.accumulate)[-1]  # the outputs are of the last micro-batch
    arrays = [leaf for _, leaf in leaves(labels)]
    arrays += outputs.values()
    sized = (leaf for leaf in arrays if np.ndim(leaf))
    count = len(next(sized, ()))
    losses: dict[ArrayId, float] = {}
    failed: dict[str, str] = {}  # case → error
    for times, samples in itertools.product(_TIMES, (count, 1, 2 * count)):
        case = ArrayId(samples=samples, factor=times)
        # MindSpore may end the process where PyTorch raises an error
        if like and case not in like.losses:
            continue
        factor = np.float32(times)

        def take(leaf: Any, samples: int = samples) -> Any:
            fits = np.ndim(leaf) and len(leaf) == count
            return np.concatenate([leaf, leaf])[:samples] if fits else leaf

        larger = {name: _times(factor, take(value)) for name, value in outputs.items()}
        try:
            others = with_leaves(example, larger, side.tensor)
            value = side.loss(others, map_tree(take, labels))
        except Exception as error:
            title = f"{samples} samples, outputs × {times}"
            failed[title] = words_of(error.__cause__ or error)
            continue
        losses[case] = value.item()
    if not failed:
        return LossesAlone(losses)
    cases, first = first_few(list(failed)), next(iter(failed.values()))
    return LossesAlone(losses, f"the reference's fails on {cases} ({first})")


def _equal_outputs(side: Side, run: Run, like: Like | None, example: Any) -> Arrays:
    """Return the outputs that both sides' losses take, under this side's names; {} if these do not
    pair.
    """
    outputs = like.train_outputs if like else side.of_all_workers(run.train_outputs[0])
    if side.is_reference:
        return outputs
    arrays = side.arrays(example)
    names = paired_outputs(arrays, outputs) or {}
    return {names[name]: array for name, array in outputs.items() if name in names}
