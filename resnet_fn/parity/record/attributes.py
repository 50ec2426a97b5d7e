"""Read the constants that a MindSpore net holds in plain attributes."""

import contextlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from mindspore import Tensor, nn

from resnet_fn.parity.record.cells import OF_CELL
from resnet_fn.parity.trace.tree import Arrays

_LARGEST = 1_000_000  # elements; a larger constant is not recorded


def attributes_of(cells: Iterable[tuple[str, nn.Cell]]) -> Arrays:
    """Return the tensors, NumPy arrays and numbers in attributes of the user's cells, by path,
    without parameters.
    """
    attributes: Arrays = {}
    for path, cell in cells:
        if type(cell).__module__.partition(".")[0] == "mindspore":
            continue
        for name, value in vars(cell).items():
            if name not in OF_CELL and (array := _as_array(value)) is not None:
                attributes[f"{path}.{name}" if path else name] = array
    return attributes


def _as_array(value: Any) -> np.ndarray | None:
    if isinstance(value, bool | int | float | np.generic):
        return np.array(value)
    array = None
    if isinstance(value, Tensor | np.ndarray) and value.size <= _LARGEST:
        with contextlib.suppress(Exception):  # a tensor without numbers, or in a type NumPy lacks
            array = value.numpy() if isinstance(value, Tensor) else value.copy()
    return array if array is not None and array.dtype.kind in "biuf" else None
