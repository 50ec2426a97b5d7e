"""Mark the stages that cannot be compared because a net draws random numbers."""

import dataclasses

from resnet_fn.parity.compare.stage import SKIPPED, Stage
from resnet_fn.parity.trace.data import Trace


def undecided_if_random(stage: Stage, port: Trace, reference: Trace) -> Stage:
    """Return the stage, undecided if a net draws random numbers in training mode."""
    for trace, side in ((port, "the net"), (reference, "the reference")):
        if not trace.random_train or stage.verdict == SKIPPED:
            continue
        where = f"in {side} {trace.random_train}"
        # random numbers may be why outputs of another batch or worker do not pair, or why a loss
        # fails
        failed = "" if stage.differences and not stage.hints else stage.failed
        message = f"{where} draws random numbers in training; switch it off to compare"
        stage = dataclasses.replace(stage, failed=failed, undecided=message)
    return stage
