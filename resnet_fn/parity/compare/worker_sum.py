"""The stage that compares the sum of the workers' gradients."""

import dataclasses

from resnet_fn.parity.compare.rule import Rule
from resnet_fn.parity.compare.sides import Sides
from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.compare.workers import PortWorkers
from resnet_fn.parity.trace.limits import EXACT
from resnet_fn.parity.trace.stages import SUM, StageId


@dataclasses.dataclass(frozen=True)
class SumOfGradients(Rule):
    """Compares what the port's all-reduce returns with the sum of the workers' gradients."""

    id: StageId = SUM
    tolerance: float = EXACT
    each_worker: bool = False
    rounded: bool = False

    def stage(self, sides: Sides) -> Stage | None:
        """Return the comparison, or None if there is only one worker."""
        if not sides.port.workers:
            return None
        return PortWorkers(sides.port).sum_of_gradients(self.tolerance)
