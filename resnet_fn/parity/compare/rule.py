"""The base of all rules: a rule compares one stage, and only that rule contains how."""

import dataclasses
from typing import Any

from resnet_fn.parity.compare.sides import Sides
from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.compare.workers import PortWorkers
from resnet_fn.parity.trace.data import Run
from resnet_fn.parity.trace.derived import ARRAYS
from resnet_fn.parity.trace.stages import StageId


@dataclasses.dataclass(frozen=True)
class Rule:
    """How one stage is compared."""

    id: StageId
    # whether the numbers depend on a forward pass in training mode, which may draw random numbers
    trains: bool = True
    # whether each of several workers has such arrays
    each_worker: bool = True
    # whether the result depends on the measured rounding
    rounded: bool = True
    # whether an error within the tolerance is named if it is beyond rounding
    names_beyond: bool = False

    def values(self, run: Run) -> dict[Any, Any]:
        """Return the arrays of one side."""
        return dict(ARRAYS[self.id](run))

    def compare(self, sides: Sides) -> Stage:
        """Compare the arrays of both sides, of any run."""
        raise NotImplementedError

    def stage(self, sides: Sides) -> Stage | None:
        """Return the result with all that only this stage has, or None if there is no such
        stage.
        """
        return self.compare(sides)

    def with_workers(self, stage: Stage, workers: PortWorkers) -> Stage:
        """Return the result after what several workers make different."""
        return stage
