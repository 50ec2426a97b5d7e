"""What a port takes over from the reference, as plain data."""

import dataclasses

from resnet_fn.parity.trace.drop import Dropping
from resnet_fn.parity.trace.stages import ArrayId
from resnet_fn.parity.trace.tree import Arrays


@dataclasses.dataclass(frozen=True)
class Like:
    """The reference's arrays and settings that a port repeats, under the port's names and in its
    shapes.
    """

    start: Arrays  # all parameters and statistics before the first update
    drawn: Arrays  # random numbers for the arrays of `start` that are constant (`Run.drawn`)
    last: Arrays  # the trained parameters after the updates of `Run.after`; {}: not recorded
    # random weights and gradients for the optimizer alone; {}: the port's optimizer is not run so
    weights: Arrays
    gradients: Arrays
    decays: dict[str, float]  # the optimizer's weight decay of each parameter
    # Outputs of update 1, and dropouts with the layers' inputs: under the reference's names. What
    # they are paired with is known when the port has run with the reference's weights.
    train_outputs: Arrays
    dropping: Dropping
    losses: frozenset[ArrayId]  # the losses alone that the reference computes; others are not tried
    layers: dict[str, str]  # the port's layer → the reference's
