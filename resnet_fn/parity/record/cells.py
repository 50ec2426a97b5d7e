"""Restore what a run of a MindSpore cell changes."""

import contextlib
import copy
from collections.abc import Iterable, Iterator

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.parity.record.numbers import Place, numbers_of
from resnet_fn.parity.trace.returned import as_complex

_assign = ops.Assign()

OF_CELL = frozenset(vars(nn.Cell()))  # attributes that every cell has
_LEFT = OF_CELL - {"training"}  # those that `Attributes` leaves as they are


def places_of(net: nn.Cell) -> dict[str, Place]:
    """Return the places of numbers in the attributes of a net's cells, by path."""
    return numbers_of(net.cells_and_names(), OF_CELL)


@contextlib.contextmanager
def unchanged(parameters: Iterable[Parameter]) -> Iterator[None]:
    """Restore the parameters at the end of a `with` block."""
    kept = [(parameter, parameter.numpy().copy()) for parameter in parameters]
    try:
        yield
    finally:
        for parameter, value in kept:
            write(parameter, value)


@contextlib.contextmanager
def requiring_grad(parameters: Iterable[Parameter], value: bool) -> Iterator[None]:
    """Set `requires_grad` of parameters to a value inside a `with` block."""
    with contextlib.ExitStack() as restored:
        for parameter in parameters:
            restored.callback(setattr, parameter, "requires_grad", parameter.requires_grad)
            parameter.requires_grad = value
        yield


@contextlib.contextmanager
def as_before(net: nn.Cell) -> Iterator[None]:
    """Restore a net's mode, parameters and attributes at the end of a `with` block.

    If the net creates parameters in the block, as lazy nets do in their first call, it keeps what
    it set.
    """
    parameters, attributes = list(net.get_parameters()), Attributes(net)
    try:
        with unchanged(parameters):
            yield
    finally:
        if len(list(net.get_parameters())) == len(parameters):
            attributes.put_back()


class Attributes:
    """The attributes that code has set on the cells of a net, and numbers in objects among them.

    An evaluation may change them: LoRA stores that it has merged its weights.
    """

    def __init__(self, net: nn.Cell) -> None:
        self._cells = []
        self._filled = []
        for _, cell in net.cells_and_names():
            own = {name: attribute for name, attribute in vars(cell).items() if name not in _LEFT}
            self._cells.append((cell, own))
            for value in own.values():
                if type(value) in (list, dict, set):
                    self._filled.append((value, copy.copy(value)))
        self._numbers = [(place, place.value()) for place in places_of(net).values()]

    def put_back(self) -> None:
        """Restore the attributes, the cells' mode, and what lists, dicts and sets contained."""
        for cell, own in self._cells:
            attributes = vars(cell)
            for name in attributes.keys() - own.keys() - _LEFT:
                del attributes[name]
            attributes.update(own)
        for value, before in self._filled:
            value.clear()
            if isinstance(value, list):
                value.extend(before)
            else:
                value.update(before)
        for place, number in self._numbers:
            place.write(number)


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
