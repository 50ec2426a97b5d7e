"""The bases of all rules: a rule compares one stage, and only that rule contains how."""

import abc
import dataclasses
from typing import Any

from resnet_fn.parity.compare.allowed import NO_TOLERANCE
from resnet_fn.parity.compare.sides import Sides
from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.compare.workers import PortWorkers
from resnet_fn.parity.trace.data import Run
from resnet_fn.parity.trace.derived import COMPARED_ARRAYS
from resnet_fn.parity.trace.stages import StageId


@dataclasses.dataclass(frozen=True)
class Rule(abc.ABC):
    """How one stage is compared."""

    id: StageId
    # the relative error that passes whatever the rounding; 0: copies. docs/parity.md, "How a bound
    # comes about", has what a rule compares by something else
    tolerance: float = NO_TOLERANCE
    # whether the stage is undecided if a net draws random numbers in training mode, as for numbers
    # that depend on such a pass. Later batches and masks do not take it over from their rule
    trains: bool = True
    # whether each of several workers has such arrays
    each_worker: bool = True
    # whether the result depends on the measured rounding; if not, it is kept when ReLU ties change
    # that
    rounded: bool = True
    # whether an error within the tolerance is named if it is beyond rounding
    names_beyond: bool = False

    @abc.abstractmethod
    def stage(self, sides: Sides) -> Stage | None:
        """Return the row of the table, or None if the table has no such row."""

    def with_workers(self, stage: Stage, workers: PortWorkers) -> Stage:
        """Return the result after what several workers make different."""
        return stage


@dataclasses.dataclass(frozen=True)
class TraceRule(Rule):
    """How a stage is compared of what the traces have beside runs.

    By default, it depends on no measured rounding, and it is one for all workers.
    """

    trains: bool = False
    each_worker: bool = False
    rounded: bool = False


@dataclasses.dataclass(frozen=True)
class RunRule(Rule):
    """How a stage is compared whose arrays a run has (`trace.derived.COMPARED_ARRAYS`).

    Other runs repeat `compare`: those on later batches, with dropout masks, or with random numbers
    for constant arrays. A rule overrides `stage` with what holds for the updates themselves only.
    """

    def values(self, run: Run) -> dict[Any, Any]:
        """Return the arrays of one side."""
        return dict(COMPARED_ARRAYS[self.id](run))

    @abc.abstractmethod
    def compare(self, sides: Sides) -> Stage:
        """Compare the arrays of both sides, of any run."""

    def stage(self, sides: Sides) -> Stage | None:
        """Return the comparison of the updates themselves."""
        return self.compare(sides)
