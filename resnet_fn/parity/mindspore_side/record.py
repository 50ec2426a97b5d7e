"""What every layer of a cell takes and gives, in execution order."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor, nn, ops

from resnet_fn.parity.layer import Layer, recording_hook
from resnet_fn.parity.mindspore_side.adapt import positional
from resnet_fn.parity.mindspore_side.settings import settings_of


def record_cell(
    net: nn.Cell, images: np.ndarray, train: bool, visit: Callable[[Layer], None] | None = None
) -> list[Layer]:
    """Run a cell on images [N, C, H, W] operation by operation and record every layer; statistics stay as they were.

    It runs outside the compiled functions, which do not let anyone look inside; that both give the same logits is
    a stage of the ladder.

    Args:
        net, images: what to run, on what.
        train: whether in training mode.
        visit: is called with each layer as it has run, and nothing is returned: all outputs together can be gigabytes.
    """
    layers: list[Layer] = []
    visit = visit or layers.append
    handles = []
    for name, layer in named_layers(net):
        owned = layer.parameters_and_names(expand=False)
        shapes = tuple((leaf, tuple(parameter.shape)) for leaf, parameter in owned)
        is_leaf = not any(True for _ in layer.cells())
        hook = recording_hook(visit, name, shapes, is_leaf, _array, settings_of)
        handles.append(layer.register_forward_hook(hook))
    with unchanged(net, handles):
        net.set_train(train)
        net(*positional(net, images))
    return layers


def named_layers(net: nn.Cell) -> Iterator[tuple[str, nn.Cell]]:
    """Every cell of a net by its path, but for the net itself and mere sequences.

    A relu that is used twice is one cell under one name; an alias of a cell would be hooked twice.
    """
    for name, layer in net.cells_and_names():
        if name and not isinstance(layer, nn.SequentialCell | nn.CellList):
            yield name, layer


@contextlib.contextmanager
def unchanged(net: nn.Cell, handles: list[Any]) -> Iterator[None]:
    """Put parameters and statistics back at the end, and remove hooks."""
    kept = [(parameter, parameter.asnumpy().copy()) for parameter in net.get_parameters()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for parameter, value in kept:
            ops.assign(parameter, Tensor(value, mindspore.float32))


def _array(value: Any) -> np.ndarray:
    return np.array(value.asnumpy(), np.float64)
