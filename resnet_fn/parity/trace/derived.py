"""The arrays of each stage, as recorded or derived from what was recorded.

The rounding of these arrays is measured, and the rules of the comparison compare them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from resnet_fn.parity.trace.data import Run
from resnet_fn.parity.trace.difference import are_integers
from resnet_fn.parity.trace.stages import (
    ALL_OUTPUTS,
    AVERAGE,
    CHANGE,
    CHANGED_BUFFERS,
    CLIPPED,
    EVAL_FORWARD,
    GRADIENTS,
    LAST,
    LOSS,
    NORM,
    RATE,
    STATISTICS,
    TRAIN_FORWARD,
    TRAJECTORY,
    WEIGHTS,
    StageId,
)
from resnet_fn.parity.trace.tree import Arrays

OfRun = Callable[[Run], Mapping[Any, np.ndarray]]  # arrays of one side by `Key`


class Computed(Mapping[Any, np.ndarray]):
    """Arrays that are computed at each access: all together would take much memory."""

    def __init__(self, names: Iterable[Any], compute: Callable[[Any], np.ndarray]) -> None:
        self._names, self._compute = dict.fromkeys(names), compute

    def __getitem__(self, name: Any) -> np.ndarray:
        if name not in self._names:
            raise KeyError(name)
        return self._compute(name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def by_update(values: Iterable[object]) -> dict[int, np.ndarray]:
    """Return one array for each update, by the update's number."""
    return {index + 1: np.asarray(value) for index, value in enumerate(values)}


def moves_evenly(values: Sequence[float]) -> bool:
    """Return whether a number moves at least twice, always by the same step or factor, apart from
    the rounding of float32. Smaller moves are rounding alone.
    """
    numbers = np.asarray(values, np.float64)
    if len(numbers) < 3 or not np.isfinite(numbers).all():
        return False
    steps = np.diff(numbers)
    largest = np.abs(numbers).max()
    with np.errstate(all="ignore"):  # numbers may be too large for float32, or the first one 0
        ulp = np.spacing(np.float32(largest))
        factor = steps[0] / numbers[0]
        by_factor = factor * numbers[:-1]
    rounding = 4 * ulp  # of both numbers of each of two steps
    if not np.abs(steps).min() > rounding:
        return False
    for even in (steps[0], by_factor):
        error = np.abs(steps - even)
        if error.max() <= rounding:
            return True
    return False


def flat(arrays: Mapping[str, np.ndarray], names: Iterable[str] | None = None) -> np.ndarray:
    """Return the numbers of all arrays, or of the arrays in `names`, as one float64 array [n]."""
    return np.concatenate(
        [np.zeros(0), *(np.ravel(arrays[name]) for name in (arrays if names is None else names))]
    )


def floats(arrays: Arrays) -> Arrays:
    """Return the arrays without those of integers and booleans, which have no rounding."""
    return {name: array for name, array in arrays.items() if not are_integers(array)}


def changes(run: Run, after: Arrays, trained: bool | None = None) -> Mapping[Any, np.ndarray]:
    """Return how far each array of `after` is from its value before the updates.

    `trained` is whether to return only arrays that have a gradient, or only those that have none;
    None: all. An array that has another shape than before is left out.
    """

    def is_compared(name: str) -> bool:
        if name not in run.start or run.start[name].shape != after[name].shape:
            return False
        return trained is None or trained == (name in run.gradients)

    def change(name: str) -> np.ndarray:
        return _change(after[name], run.start[name])

    return Computed(filter(is_compared, after), change)


def _change(after: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Return `after` − `start` in 64 bits. Equal numbers have no change, even if infinite."""
    if are_integers(after, start):
        return after.astype(np.int64) - start.astype(np.int64)
    dtype = np.complex128 if after.dtype.kind == "c" else np.float64
    if after is start:  # nothing has changed (`record_updates`)
        return np.zeros(start.shape, dtype)
    with np.errstate(invalid="ignore"):
        change = np.subtract(after, start, dtype=dtype)
    same = ~np.isfinite(change)
    if same.any():
        change[same & (after == start)] = 0
    return change


def statistics_of(run: Run) -> Mapping[Any, np.ndarray]:
    """Return the change of BatchNorm's statistics, and of other untrained arrays, by update 1."""
    return changes(run, run.after[0], trained=False) if run.after else {}


def change_of(run: Run) -> Mapping[Any, np.ndarray]:
    """Return the change of each trained parameter by update 1."""
    return changes(run, run.after[0], trained=True) if run.after else {}


def last_change_of(run: Run) -> Mapping[Any, np.ndarray]:
    """Return the change of all arrays by all recorded updates, or none if there was only one."""
    return changes(run, run.after[-1]) if len(run.after) > 1 else {}


# In the order of a training step. After update 1, later arrays depend on the earlier ones.
MEASURED_ARRAYS: dict[StageId, OfRun] = {
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
    LAST: last_change_of,
    CHANGED_BUFFERS: lambda run: run.last_outputs,
    AVERAGE: lambda run: changes(run, run.average),
    ALL_OUTPUTS: lambda run: by_update(flat(floats(outputs)) for outputs in run.train_outputs),
}

COMPARED_ARRAYS: dict[StageId, OfRun] = {WEIGHTS: lambda run: run.start, **MEASURED_ARRAYS}
