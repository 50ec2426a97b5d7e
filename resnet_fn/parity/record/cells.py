"""Record the inputs and outputs of every layer of a MindSpore cell, in the order of execution."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.parity.record.layers import record_layers
from resnet_fn.parity.record.numbers import Place, numbers_of, same_numbers
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.returned import as_complex

_assign = ops.Assign()

_OF_CELL = frozenset(vars(nn.Cell()))  # attributes that every cell has


def record_cell(
    net: nn.Cell, call: Callable[[], Any], train: bool, visit: Callable[[Layer], None] | None = None
) -> list[Layer]:
    """Run a net with `call`, and record every execution of its layers (`record_layers`). Parameters
    and counters are restored.

    `call` must run the net uncompiled, because compiled functions call no hooks. Afterwards, the
    net is in training mode if `train` is True, else in evaluation mode.
    """

    def run() -> None:
        net.set_train(train)
        call()

    with unchanged(net.get_parameters()), same_numbers(places_of(net).values()):
        return record_layers(net, run, visit)


def places_of(net: nn.Cell) -> dict[str, Place]:
    """Return the places of numbers in the attributes of a net's cells, by path."""
    return numbers_of(net.cells_and_names(), _OF_CELL)


@contextlib.contextmanager
def unchanged(parameters: Iterable[Parameter], handles: Sequence[Any] = ()) -> Iterator[None]:
    """Restore the parameters at the end of a `with` block, and remove the hooks in `handles`."""
    kept = [(parameter, parameter.numpy().copy()) for parameter in parameters]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for parameter, value in kept:
            write(parameter, value)


def write(parameter: Parameter, value: np.ndarray) -> None:
    """Set a Parameter in place, so that compiled functions use the new value."""
    array = np.asarray(value)
    if parameter.dtype in (mindspore.complex64, mindspore.complex128):
        array = as_complex(array)
    tensor = Tensor(array, parameter.dtype)
    try:
        _assign(parameter, tensor)
    except RuntimeError:
        # The parameter is a view, such as the g of a weight norm, and gets memory of its own.
        parameter.set_data(tensor)
