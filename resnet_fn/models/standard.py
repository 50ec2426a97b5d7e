"""A net of MindSpore's own operations."""

import contextlib
from collections.abc import Iterator

from mindspore import nn

from resnet_fn.models.winograd import use_winograd


@contextlib.contextmanager
def standard_operations(net: nn.Cell) -> Iterator[None]:
    """While this lasts, what a CPU computes by matrix products is MindSpore's own: what an exported graph must hold.

    Convolutions (`winograd.convolve`), and sums over positions in gates (`positions`).
    """
    convolutions = use_winograd(net, False)
    gates = [cell for _, cell in net.cells_and_names() if getattr(cell, "standard", None) is False]
    for cell in gates:
        cell.standard = True
    try:
        yield
    finally:
        for cell in convolutions:
            cell.winograd = True
        for cell in gates:
            cell.standard = False
