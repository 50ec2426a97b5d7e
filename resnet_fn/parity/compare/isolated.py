"""Compare the optimizer alone and the loss alone, on made-up arrays that both sides got."""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from resnet_fn.config.wording import first_few
from resnet_fn.parity.compare.allowed import (
    CHANGES_TOLERANCE,
    OUTPUTS_TOLERANCE,
    cancellation_bound,
    kernel_rounding,
    random_walk_bound,
)
from resnet_fn.parity.compare.rule import Rule
from resnet_fn.parity.compare.sides import Sides
from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.trace.difference import UNDECIDED
from resnet_fn.parity.trace.limits import CEILING
from resnet_fn.parity.trace.made_up import made_up
from resnet_fn.parity.trace.stages import ALONE, LOSS_ALONE, ArrayId, StageId


@dataclasses.dataclass(frozen=True)
class OptimizerAlone(Rule):
    """Compares how both optimizers change random weights by random gradients."""

    id: StageId = ALONE
    tolerance: float = CHANGES_TOLERANCE
    trains: bool = False
    rounded: bool = False

    def stage(self, sides: Sides) -> Stage | None:
        """Return the comparison after the first and last update, or None if a side has none."""
        port, reference = sides.port.optimizer_alone, sides.reference.optimizer_alone
        if not (port and reference):
            return None
        gradients = sides.reference.run.gradients
        shapes = {name: array.shape for name, array in gradients.items()}
        weights, _ = made_up(shapes)
        names = sides.names
        renamed = names.rename(weights)
        differences = []
        for update, changes in reference.items():
            port_changes = port[update]
            for name, b in names.rename(changes).items():
                if name in port_changes and not names.parameters[name].added:
                    bound = random_walk_bound(self.tolerance, update, renamed[name], b)
                    array = ArrayId(name, alone=update)
                    differences.append(bound.compare(array, port_changes[name], b))
        return Stage(self.id, differences)


@dataclasses.dataclass(frozen=True)
class LossAlone(Rule):
    """Compares the losses that both sides compute from the same outputs."""

    id: StageId = LOSS_ALONE
    tolerance: float = OUTPUTS_TOLERANCE
    rounded: bool = False

    def stage(self, sides: Sides) -> Stage | None:
        """Return the comparison, or None if a side has no loss of its own."""
        port, losses = sides.port.losses_alone, sides.reference.losses_alone
        if not (port and losses):
            return None
        reference = {case: loss for case, loss in losses.items() if math.isfinite(loss)}
        outputs = sides.reference.run.train_outputs[0].values()
        largest = max(float(np.abs(leaf).max(initial=0)) for leaf in outputs)
        kernels = sides.kernels(self.id)
        differences = []
        failed = []
        for case, b in reference.items():
            if case not in port:
                failed.append(words_of_case(case))
                continue
            moved = kernels.get(case, 0.0)
            bound = cancellation_bound(self.tolerance, largest * case.factor, b, moved)
            differences.append(bound.compare(case, port[case], b))
        message = f"it fails on {first_few(failed)} in the port" if failed else ""
        stage = Stage(self.id, differences, failed=message)
        return _without_kernels(stage, kernels)


def _without_kernels(stage: Stage, kernels: Mapping[ArrayId, float]) -> Stage:
    """Return the stage without the losses that MindSpore's kernels make undecided, if others are
    left. A line names them.
    """
    moved = [
        item
        for item in stage.differences
        if item.verdict == UNDECIDED and kernel_rounding(kernels.get(item.id, 0.0)) > CEILING
    ]
    left = [item for item in stage.differences if item not in moved]
    if not (moved and left):
        return stage
    cases = first_few([words_of_case(item.id) for item in moved])
    line = f"loss alone of {cases}: MindSpore's kernels compute something else there"
    return dataclasses.replace(
        stage, differences=left, left_out=moved, not_exercised=[*stage.not_exercised, line]
    )


def words_of_case(case: ArrayId) -> str:
    """Describe outputs of which a loss alone is computed."""
    return f"{case.samples} samples, outputs × {case.factor}"
