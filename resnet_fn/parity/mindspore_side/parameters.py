"""A net's parameters and statistics as arrays, by path."""

from collections.abc import Mapping

import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.parity.traces.batches import Arrays


def parameters_by_path(net: nn.Cell) -> dict[str, Parameter]:
    """All parameters and statistics by their path in the net.

    `Parameter.name` is the path at the time when the cell was built in; a cell that was put in later may carry
    another's name.
    """
    return dict(net.parameters_and_names())


def state(net: nn.Cell) -> Arrays:
    """All parameters and statistics of a net as arrays, by path."""
    return {name: parameter.asnumpy().copy() for name, parameter in parameters_by_path(net).items()}


def assign(net: nn.Cell, values: Mapping[str, np.ndarray]) -> None:
    """Put values into a net so that compiled functions see them too."""
    parameters = parameters_by_path(net)
    for name, value in values.items():
        ops.assign(parameters[name], Tensor(np.asarray(value), parameters[name].dtype))
