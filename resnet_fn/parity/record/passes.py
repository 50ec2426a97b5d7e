"""Run a side's net forward on a batch, and return what it computes as arrays."""

import numpy as np

from resnet_fn.parity.record.responses import whole_output
from resnet_fn.parity.record.side import Side
from resnet_fn.parity.trace.stages import FIRST, LOSS
from resnet_fn.parity.trace.tree import Arrays


def evaluated(side: Side, batch: int = FIRST) -> Arrays:
    """Return the outputs of a batch in evaluation mode."""
    inputs, _ = side.plan.batches[batch - FIRST]
    outputs = side.forward(inputs, False)
    return side.arrays(outputs)


def trained(side: Side, batch: int = FIRST) -> Arrays:
    """Return the outputs of a batch's first micro-batch in training mode, and their loss."""
    inputs, labels = side.plan.first_of(batch)
    outputs = side.forward(inputs, True)
    results = side.arrays(outputs)
    results[LOSS.name] = side.loss(outputs, labels)
    return results


def output_in_training(side: Side) -> np.ndarray | None:
    """Return the outputs of the first micro-batch in training mode (`whole_output`)."""
    inputs, _ = side.plan.first
    outputs = side.forward(inputs, True)
    return whole_output(side.arrays(outputs))
