"""Dropout and drop-path of a MindSpore net set to 0: no two frameworks share their random masks."""

import contextlib
from collections.abc import Iterator
from typing import Any

from mindspore import nn

from resnet_fn.parity.describe import DROPS, drops
from resnet_fn.parity.mindspore_side.settings import dropped
from resnet_fn.parity.traces.layer import kind_of


@contextlib.contextmanager
def without_dropout(net: nn.Cell) -> Iterator[list[str]]:
    """Inside, nothing is dropped: dropout cells, attention's, LSTM's, and drop-path by its usual attributes.

    Compile functions of the net inside: what is compiled keeps what was set then.

    Yields:
        What is set to 0, with its value: "encoder.0.dropout: p=0.1".
    """
    changed: list[tuple[Any, str, Any]] = []
    found = []

    def change(layer: nn.Cell, attribute: str, value: Any) -> None:
        changed.append((layer, attribute, getattr(layer, attribute)))
        setattr(layer, attribute, value)

    try:
        for name, layer in net.cells_and_names():
            if kind_of(layer) == "dropout":
                if dropped(layer) > 0:
                    found.append(f"{name}: p={dropped(layer):g}")
                    for attribute, nothing in (("p", 0.0), ("prob", 0.0), ("keep_prob", 1.0)):
                        if hasattr(layer, attribute):
                            change(layer, attribute, nothing)
                continue
            for attribute, value in drops(layer, DROPS):
                found.append(f"{name}: {attribute}={value:g}")
                change(layer, attribute, type(value)(0))
            if isinstance(kept := getattr(layer, "keep_prob", None), float) and kept < 1:  # MindCV's DropPath
                found.append(f"{name}: keep_prob={kept:g}")
                change(layer, "keep_prob", 1.0)
        yield found
    finally:
        for layer, attribute, value in reversed(changed):
            setattr(layer, attribute, value)
