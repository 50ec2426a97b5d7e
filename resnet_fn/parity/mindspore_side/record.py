"""What every layer of a cell takes and gives, in execution order, and which of its arrays are what."""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.parity.mindspore_side.adapt import positional
from resnet_fn.parity.mindspore_side.settings import settings_of
from resnet_fn.parity.traces.layer import Layer, is_whole, recorded_layers, recording_hook


def record_cell(net: nn.Cell, inputs: Any, train: bool, visit: Callable[[Layer], None] | None = None) -> list[Layer]:
    """Run a cell operation by operation and record every layer; statistics stay as they were.

    It runs outside the compiled functions, which do not let anyone look inside; that both give the same logits is
    a stage of the ladder.

    Args:
        net: what to run.
        inputs: an array, a tuple of arrays (its arguments), or a dict of them (by their names).
        train: whether in training mode.
        visit: is called with each layer as it has run, and nothing is returned: all outputs together can be gigabytes.
    """
    layers: list[Layer] = []
    visit = visit or layers.append
    handles = []
    for name, layer in named_layers(net):
        whole = is_whole(layer)
        owned = layer.parameters_and_names(expand=whole)
        shapes = tuple((leaf, tuple(parameter.shape)) for leaf, parameter in owned)
        is_leaf = whole or not any(True for _ in layer.cells())
        hook = recording_hook(visit, name, shapes, is_leaf, _array, settings_of)
        handles.append(layer.register_forward_hook(hook, with_kwargs=True))
    with unchanged(net, handles):
        net.set_train(train)
        net(*positional(net, inputs))
    return layers


def named_layers(net: nn.Cell) -> Iterator[tuple[str, nn.Cell]]:
    """Every cell of a net by its path, but for the net itself, mere sequences, and what is inside attention and LSTMs.

    A relu that is used twice is one cell under one name; an alias of a cell would be hooked twice.
    """
    return recorded_layers(net, lambda layer: isinstance(layer, nn.SequentialCell | nn.CellList | nn.CellDict))


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
            ops.assign(parameter, Tensor(value, parameter.dtype))


def tied(net: nn.Cell) -> list[tuple[str, ...]]:
    """The names of each parameter that has more than one: what is shared between layers."""
    names: dict[int, list[str]] = defaultdict(list)
    for name, parameter in _all_names(net, ""):
        names[id(parameter)].append(name)
    return [tuple(group) for group in names.values() if len(group) > 1]


def trainable(net: nn.Cell) -> list[str]:
    """The names of the parameters that an update changes, shared ones under each of their names."""
    return [name for name, parameter in _all_names(net, "") if parameter.requires_grad]


def constants(net: nn.Cell) -> list[str]:
    """The names of the parameters that no update changes and that are no statistics, frozen weights among them.

    The reference may make them where it needs them, so they need no counterpart: position tables, index tables,
    the gamma of a norm without one, counters.
    """
    statistics = ("moving_mean", "moving_variance", "running_mean", "running_var")
    return [
        name
        for name, parameter in _all_names(net, "")
        if not parameter.requires_grad and name.rpartition(".")[2] not in statistics
    ]


def _all_names(cell: nn.Cell, path: str) -> Iterator[tuple[str, Parameter]]:
    """Every parameter by every path that leads to it."""
    for leaf, parameter in cell.parameters_and_names(expand=False):
        yield f"{path}.{leaf}" if path else leaf, parameter
    for part, inner in cell._cells.items():
        if inner is not None:
            yield from _all_names(inner, f"{path}.{part}" if path else part)


def _array(value: Tensor) -> np.ndarray:
    return np.array(value.asnumpy(), np.float64)
