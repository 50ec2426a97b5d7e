"""Measure the rounding of a run while it is made again in float64."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from resnet_fn.parity.record.rounding import of_update, rounding
from resnet_fn.parity.record.updates import Watch
from resnet_fn.parity.trace.data import Rounding, Run
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
    StageId,
)
from resnet_fn.parity.trace.tree import Arrays

# the stages that are complete before update 1 has changed the weights, and after it
_FIRST = (EVAL_FORWARD, TRAIN_FORWARD, LOSS, GRADIENTS, ALL_GRADIENTS, NORM, CLIPPED)
_CHANGE = (CHANGE, STATISTICS)

# the stages that all updates together complete
_WHOLE = (RATE, TRAJECTORY, CHANGED_BUFFERS, AVERAGE, OUTPUTS)


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

    def first(self, run: Run) -> None:
        """Measure update 1 until its gradients."""
        self._measure(_without_states(self._run), _without_states(run), _FIRST)
        run.gradients, run.clipped, run.parts = {}, {}, []

    def updated(self, run: Run) -> None:
        """Measure the change by update 1, and the weights after the last recorded update."""
        count = len(run.losses)
        if count == 1:
            recorded, exact = (_first_change(one, self._run.gradients) for one in (self._run, run))
            self._measure(recorded, exact, _CHANGE)
        if 1 < count < len(self._run.after):  # the comparison of a chaotic training may end here
            self.rounding |= of_update(count, self._run, run, self._run)
        if count == len(self._run.after) > 1:
            self._measure(_last_weights(self._run), _last_weights(run), (LAST,))
        if count <= len(self._run.after):
            run.after[-1] = _integers(run.after[-1])

    def finished(self, run: Run) -> None:
        """Measure what the updates have as a whole: losses, outputs, the moving average."""
        self._measure(_without_states(self._run), _without_states(run), _WHOLE)
        run.average = _integers(run.average)

    def further(self, run: Run, **marks: Any) -> None:
        """Measure a further pass."""
        recorded = self._pass_like(marks)
        if recorded:
            measured = rounding(recorded[0], run)
            self.rounding |= {replace(stage, **marks): one for stage, one in measured.items()}
        run.gradients, run.clipped, run.parts = {}, {}, []
        run.after = [_integers(one) for one in run.after]

    def _pass_like(self, marks: Mapping[str, Any]) -> Sequence[Run]:
        """Return [the recorded pass with these marks], or [] if there is none."""
        if "batch" in marks:
            return self._run.later[marks["batch"] - 2 :][:1]
        return self._run.dropped if "masked" in marks else self._run.drawn

    def _measure(self, recorded: Run, exact: Run, stages: Sequence[StageId]) -> None:
        names = [stage.name for stage in stages]
        measured = rounding(recorded, exact)
        self.rounding |= {stage: one for stage, one in measured.items() if stage.name in names}


def _first_change(run: Run, gradients: Arrays) -> Run:
    """Return the state before and after update 1 alone. Of the gradients, only the names count."""
    return Run({}, run.start, [], after=run.after[:1], gradients=gradients)


def _last_weights(run: Run) -> Run:
    """Return the weights after the last recorded update alone."""
    before = [Arrays() for _ in run.after[1:]]
    return Run({}, run.start, [], after=[*before, run.after[-1]])


def _without_states(run: Run) -> Run:
    """Return a run without the states after its updates and without further passes."""
    return replace(run, after=[], later=[], drawn=[], dropped=[])


def _same(array: np.ndarray, recorded: np.ndarray | None) -> bool:
    return recorded is not None and np.array_equal(array, recorded)


def _integers(arrays: Arrays) -> Arrays:
    return {name: one for name, one in arrays.items() if are_integers(one)}
