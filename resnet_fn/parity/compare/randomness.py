"""Mark the stages that cannot be compared because a net draws random numbers."""

import dataclasses

from resnet_fn.parity.compare.stage import SKIPPED, Stage
from resnet_fn.parity.trace.data import Trace


def undecided_if_random(stage: Stage, port: Trace, reference: Trace) -> Stage:
    """Return the stage, undecided if a net draws random numbers in training mode."""
    if stage.verdict == SKIPPED:
        return stage
    sides = {"the net": port.random_train, "the reference": reference.random_train}
    draws = [f"in {side} {what}" for side, what in sides.items() if what]
    if not draws:
        return stage
    # random numbers may be why outputs of another batch or worker do not pair, or why a loss fails
    failed = "" if stage.differences and not stage.hints else stage.failed
    drawing = f"{draws[0]} draws"
    if len(draws) > 1:
        drawing = f"{' and '.join(draws)} draw"
    message = f"{drawing} random numbers in training; switch it off to compare"
    undecided = "; ".join(filter(None, (stage.undecided, message)))
    return dataclasses.replace(stage, failed=failed, undecided=undecided)
