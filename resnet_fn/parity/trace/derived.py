"""The arrays of each stage, as recorded or derived from what was recorded.

The rounding of these arrays is measured, and the rules of the comparison compare them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from resnet_fn.parity.trace.data import Run
from resnet_fn.parity.trace.difference import are_integers
from resnet_fn.parity.trace.stages import (
    ALL_GRADIENTS,
    AVERAGE,
    CHANGE,
    CHANGED_BUFFERS,
    CLIPPED,
    EVAL_FORWARD,
    GRADIENTS,
    LAST,
    LOSS,
    NORM,
    OUTPUTS,
    RATE,
    STATISTICS,
    TRAIN_FORWARD,
    TRAJECTORY,
    WEIGHTS,
    StageId,
)
from resnet_fn.parity.trace.tree import Arrays

OfRun = Callable[[Run], dict[Any, np.ndarray]]  # arrays of one side by `Key`


def by_update(values: Iterable[object]) -> dict[int, np.ndarray]:
    """Return one array for each update, by the update's number."""
    return {index + 1: np.asarray(value) for index, value in enumerate(values)}


def flat(arrays: Mapping[str, np.ndarray], names: Iterable[str] | None = None) -> np.ndarray:
    """Return the numbers of all arrays, or of the arrays in `names`, as one float64 array [n]."""
    return np.concatenate(
        [np.zeros(0), *(np.ravel(arrays[name]) for name in (arrays if names is None else names))]
    )


def floats(arrays: Arrays) -> Arrays:
    """Return the arrays without those of integers and booleans, which have no rounding."""
    return {name: one for name, one in arrays.items() if not are_integers(one)}


def statistics_of(run: Run) -> Arrays:
    """Return BatchNorm's statistics, and other untrained arrays, after update 1."""
    first = run.after[0] if run.after else {}
    return {name: value for name, value in first.items() if name not in run.gradients}


def change_of(run: Run) -> Arrays:
    """Return the change of each trained parameter by update 1, in float64."""
    return {
        name: np.subtract(run.after[0][name], run.start[name], dtype=np.float64)
        for name in (run.gradients if run.after else ())
    }


def last_weights_of(run: Run) -> Arrays:
    """Return all arrays after the last recorded update, or none if there was only one update."""
    return run.after[-1] if len(run.after) > 1 else {}


# In the order of a training step. After update 1, later arrays depend on the earlier ones.
MEASURED: dict[StageId, OfRun] = {
    EVAL_FORWARD: lambda run: run.eval_outputs,
    TRAIN_FORWARD: lambda run: run.train_outputs[0] if run.train_outputs else {},
    LOSS: lambda run: {LOSS.name: np.asarray(run.losses[:1])},
    GRADIENTS: lambda run: run.gradients,
    NORM: lambda run: {"norm": np.asarray(run.norms[:1])} if run.norms else {},
    CLIPPED: lambda run: run.clipped,
    RATE: lambda run: by_update(run.rates),
    CHANGE: change_of,
    STATISTICS: statistics_of,
    TRAJECTORY: lambda run: by_update(run.losses),
    LAST: last_weights_of,
    CHANGED_BUFFERS: lambda run: run.last_outputs,
    AVERAGE: lambda run: run.average,
    ALL_GRADIENTS: lambda run: {"": flat(run.gradients)},
    OUTPUTS: lambda run: by_update(flat(floats(one)) for one in run.train_outputs),
}

ARRAYS: dict[StageId, OfRun] = {WEIGHTS: lambda run: run.start, **MEASURED}
