"""The stages of a training step, in order, and the recorded arrays of each."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from resnet_fn.parity.pair import name_map
from resnet_fn.parity.trace.data import Run
from resnet_fn.parity.trace.plan import LATER
from resnet_fn.parity.trace.tree import Arrays

INPUTS, INITIALISATION, UNTRAINED, WEIGHTS = (
    "inputs",
    "initialisation",
    "untrained arrays",
    "weights",
)

EVAL_FORWARD, TRAIN_FORWARD, LOSS = "eval forward", "train forward", "loss"

# Suffixes of the names of stages, for all batches after the first and for one update with dropout
# masks.
LATER_BATCHES, WITH_DROPOUT = ", later batches", ", with dropout"

LAYERS_OF = {
    EVAL_FORWARD: ("eval", "eval layers"),
    TRAIN_FORWARD: ("train", "train layers"),
    TRAIN_FORWARD + WITH_DROPOUT: ("dropout", f"train layers{WITH_DROPOUT}"),
}

GRADIENTS, NORM, CLIPPED, RATE = "gradients", "gradient norm", "clipped gradients", "learning rate"

SETTINGS, ALONE, LOSS_ALONE = "optimizer settings", "optimizer alone", "loss alone"

CHANGE, STATISTICS = "change by update 1", "BatchNorm statistics after update 1"

TRAJECTORY, LAST, AVERAGE = (
    "loss trajectory",
    f"weights after update {LATER}",
    "averaged weights after the last update",
)

MOVED = "eval forward after the updates"

OF_CHANGE = 1e-3  # the tolerance of a weight's change, also if the weight begins at zero


def by_update(values: Iterable[object]) -> Arrays:
    """Return one array for each update, by title."""
    return {f"update {index + 1}": np.asarray(value) for index, value in enumerate(values)}


def flat(arrays: Mapping[str, np.ndarray], names: Iterable[str] | None = None) -> np.ndarray:
    """Return the numbers of all arrays, or of the arrays in `names`, as one float64 array [n]."""
    return np.concatenate(
        [np.zeros(0), *(np.ravel(arrays[name]) for name in (arrays if names is None else names))]
    )


def statistics_of(trace: Run) -> Arrays:
    """Return BatchNorm's statistics, and other untrained arrays, after update 1."""
    first = trace.after[0] if trace.after else {}
    return {name: value for name, value in first.items() if name not in trace.gradients}


def change_of(trace: Run) -> Arrays:
    """Return the change of each trained parameter by update 1, in float64."""
    return {
        name: np.subtract(trace.after[0][name], trace.start[name], dtype=np.float64)
        for name in (trace.gradients if trace.after else ())
    }


class Row(NamedTuple):
    """A row of the table `STAGES`.

    `values` returns the arrays of one side that the stage compares.
    """

    name: str
    # the relative error ‖a − b‖ / ‖b‖ that passes whatever the rounding (docs/migrating.md)
    tolerance: float
    # the compared arrays: "all", "trained", "rest", or trained arrays in "backward" order; "":
    # outputs or updates
    of: str
    values: Callable[[Run], Arrays]
    what: str = name_map.VALUES  # the kind of `values` (`MadeOf.build`)


STAGES = (
    Row(WEIGHTS, 0.0, "all", lambda trace: trace.start),
    Row(EVAL_FORWARD, 1e-5, "", lambda trace: trace.eval_outputs),
    Row(
        TRAIN_FORWARD, 1e-5, "", lambda trace: trace.train_outputs[0] if trace.train_outputs else {}
    ),
    Row(LOSS, 1e-5, "", lambda trace: {"loss": np.asarray(trace.losses[:1])}),
    Row(LOSS_ALONE, 0.0, "alone", lambda trace: {}),
    Row(GRADIENTS, 1e-4, "backward", lambda trace: trace.gradients, name_map.GRADIENTS),
    Row(NORM, 1e-5, "", lambda trace: {"norm": np.asarray(trace.norms[:1])}),
    Row(CLIPPED, 1e-4, "backward", lambda trace: trace.clipped, name_map.GRADIENTS),
    Row(RATE, 1e-6, "", lambda trace: by_update(trace.rates)),
    Row(SETTINGS, 0.0, "settings", lambda trace: {}),
    Row(ALONE, 0.0, "alone", lambda trace: {}),
    Row(CHANGE, OF_CHANGE, "trained", change_of),
    Row(STATISTICS, 1e-5, "rest", statistics_of),
    Row(TRAJECTORY, 1e-3, "", lambda trace: by_update(trace.losses)),
    Row(LAST, 1e-4, "all", lambda trace: trace.after[-1] if len(trace.after) > 1 else {}),
    Row(MOVED, 1e-4, "", lambda trace: trace.last_outputs),
    Row(AVERAGE, 1e-4, "all", lambda trace: trace.average),
)

# The stages that are compared on each batch, with the weights from before any update.
EACH_BATCH = [row for row in STAGES if row.name in (EVAL_FORWARD, TRAIN_FORWARD, LOSS, GRADIENTS)]

WITH_MASKS = [
    row for row in STAGES if row.name in (TRAIN_FORWARD, LOSS, GRADIENTS, CHANGE, STATISTICS)
]

# Names for the rounding of the arrays from which norms and losses are computed.
ALL_GRADIENTS, OUTPUTS = "all gradients", "outputs of each update"

AFTER = (LAST, AVERAGE)

WEIGHT_STAGES = (CHANGE, *AFTER)

# A gradient is only rounding if its error against float64 is above NOISE and its norm below _SMALL
# of all gradients.
NOISE, SMALL_GRADIENT = 0.5, 1e-4

# The stages whose rounding is also measured by noise.
MEASURED = {
    name
    for row in EACH_BATCH
    for name in (row.name, row.name + LATER_BATCHES, row.name + WITH_DROPOUT)
}
