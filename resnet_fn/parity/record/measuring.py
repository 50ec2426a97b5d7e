"""Measure the rounding of a run while it is made again in float64."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from resnet_fn.parity.record.rounding import of_update, rounding
from resnet_fn.parity.record.updates import Watch
from resnet_fn.parity.trace.data import Rounding, Run
from resnet_fn.parity.trace.derived import MEASURED_ARRAYS
from resnet_fn.parity.trace.difference import are_integers
from resnet_fn.parity.trace.stages import (
    CHANGE,
    CLIPPED,
    EVAL_FORWARD,
    GRADIENTS,
    LAST,
    LOSS,
    NORM,
    STATISTICS,
    TRAIN_FORWARD,
    StageId,
    marked,
)
from resnet_fn.parity.trace.tree import Arrays

# When the stages are complete: the gradients as soon as they are there, because they are dropped,
# others before update 1 has changed the weights, and after it
_GRADIENTS = (GRADIENTS,)
_FIRST = (EVAL_FORWARD, TRAIN_FORWARD, LOSS, NORM, CLIPPED)
_CHANGE = (CHANGE, STATISTICS)

# all others: what all updates together complete
_WHOLE = tuple(
    stage for stage in MEASURED_ARRAYS if stage not in (*_GRADIENTS, *_FIRST, *_CHANGE, LAST)
)


class Measuring(Watch):
    """Measures the rounding of a run's arrays, as soon as the same run has them in float64.

    Weights and gradients in float64 take much memory, so they are dropped when they are measured.
    Integers stay, of which `changing` looks at all runs together.
    """

    def __init__(self, run: Run) -> None:
        self._run, self.rounding = run, Rounding()

    def started(self, run: Run) -> None:
        """Take over the recorded arrays from before the updates, which are the same numbers."""
        run.start = {
            name: array if not _same(array, self._run.start.get(name)) else self._run.start[name]
            for name, array in run.start.items()
        }

    def gradients(self, gradients: Arrays) -> None:
        """Measure the gradients of update 1, before they are clipped."""
        self._measure(Run({}, {}, [], gradients=gradients), _GRADIENTS)

    def first(self, run: Run) -> None:
        """Measure update 1 until its clipped gradients."""
        self._measure(run, _FIRST)
        _drop_gradients(run)

    def updated(self, run: Run) -> None:
        """Measure the change by update 1, and the weights after the last recorded update."""
        count = len(run.losses)
        if count == 1:
            # of the gradients, only the names count
            self._measure(replace(run, gradients=self._run.gradients), _CHANGE)
        if 1 < count < len(self._run.after):  # the comparison of a chaotic training may end here
            self.rounding |= of_update(count, self._run, run)
        if count == len(self._run.after) > 1:
            self._measure(run, (LAST,))
        if count <= len(self._run.after):
            run.after[-1] = _integers(run.after[-1])

    def finished(self, run: Run) -> None:
        """Measure what the updates have as a whole: losses, outputs, the moving average."""
        self._measure(run, _WHOLE)
        run.average = _integers(run.average)

    def further(self, run: Run, **marks: Any) -> None:
        """Measure a further pass."""
        recorded = self._pass_like(marks)
        if recorded:
            self.rounding |= marked(rounding(recorded[0], run), **marks)
        _drop_gradients(run)
        run.after = [_integers(arrays) for arrays in run.after]

    def _pass_like(self, marks: Mapping[str, Any]) -> Sequence[Run]:
        """Return [the recorded pass with these marks], or [] if there is none."""
        if "batch" in marks:
            return self._run.later[marks["batch"] - 2 :][:1]
        return self._run.dropped if "masked" in marks else self._run.drawn

    def _measure(self, exact: Run, stages: Collection[StageId]) -> None:
        recorded = _without_further(self._run)
        self.rounding |= rounding(recorded, _without_further(exact), stages=stages)


class Drifting(Watch):
    """Measures how far noise moves the weights after each update from the second on, except the
    last, if training is chaotic.

    It drops the gradients, and the states after updates but the last one: they take much memory.
    """

    def __init__(self, run: Run, chaotic: bool) -> None:
        self._run, self._chaotic, self.of_updates = run, chaotic, Rounding()

    def updated(self, run: Run) -> None:
        """Measure the weights after an update, if a later one is recorded."""
        count = len(run.losses)
        if self._chaotic and 1 < count < len(self._run.after):
            self.of_updates |= of_update(count, run, self._run, self._run)
        run.after[:-1] = [{} for _ in run.after[:-1]]
        _drop_gradients(run)


def _drop_gradients(run: Run) -> None:
    run.gradients, run.clipped, run.parts = {}, {}, []


def _without_further(run: Run) -> Run:
    """Return a run without further passes."""
    return replace(run, later=[], drawn=[], dropped=[])


def _same(array: np.ndarray, recorded: np.ndarray | None) -> bool:
    return recorded is not None and np.array_equal(array, recorded)


def _integers(arrays: Arrays) -> Arrays:
    return {name: array for name, array in arrays.items() if are_integers(array)}
