"""Inputs and outputs of every layer of a MindSpore cell, in execution order."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.parity.layers.layer import Layer
from resnet_fn.parity.layers.record import record_layers, recorded_layers

_assign = ops.Assign()


def record_cell(
    net: nn.Cell, call: Callable[[], Any], train: bool, visit: Callable[[Layer], None] | None = None
) -> list[Layer]:
    """Run a cell by `call`, uncompiled, since compiled functions call no hooks; record every layer (`record_layers`).

    Parameters and statistics are put back; the net stays in the mode of `train`.
    """

    def run() -> None:
        net.set_train(train)
        call()

    with unchanged(net.get_parameters()):
        return record_layers(
            named_layers(net), run, lambda layer, inside: layer.parameters_and_names(expand=inside), _array, visit
        )


def named_layers(net: nn.Cell) -> Iterator[tuple[str, nn.Cell]]:
    """Every cell of a net by its path, except the net itself, sequences, and cells inside attention and LSTMs.

    A cell with several names has its first: hooks on an alias would run twice.
    """
    return recorded_layers(net, (nn.SequentialCell, nn.CellList, nn.CellDict))


@contextlib.contextmanager
def unchanged(parameters: Iterable[Parameter], handles: Sequence[Any] = ()) -> Iterator[None]:
    """Restore parameters on leaving, and remove hooks."""
    kept = [(parameter, parameter.numpy().copy()) for parameter in parameters]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for parameter, value in kept:
            write(parameter, value)


def write(parameter: Parameter, value: np.ndarray) -> None:
    """Set a Parameter in place, so that compiled functions use the new value; a view gets memory of its own first."""
    tensor = Tensor(np.asarray(value), parameter.dtype)
    try:
        _assign(parameter, tensor)
    except RuntimeError:  # of a view: the g of a weight norm
        parameter.set_data(tensor)


def _array(value: Tensor) -> np.ndarray:
    return np.array(value.numpy(), np.float64)
