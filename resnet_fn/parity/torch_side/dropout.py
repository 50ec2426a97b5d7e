"""Dropout and drop-path of a torch module set to 0: no two frameworks share their random masks."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from resnet_fn.parity.describe import DROPS, drops


@contextlib.contextmanager
def without_dropout(module: torch.nn.Module) -> Iterator[list[str]]:
    """Inside, nothing is dropped: dropout layers, attention's, LSTM's, and drop-path of timm and torchvision.

    Yields:
        What is set to 0, with its value: "encoder.0.dropout: p=0.1".
    """
    changed: list[tuple[Any, str, Any]] = []
    found = []
    for name, layer in module.named_modules():
        for attribute, value in drops(layer, _attributes(layer)):
            changed.append((layer, attribute, value))
            found.append(f"{name}: {attribute}={value:g}")
    for layer, attribute, value in changed:
        setattr(layer, attribute, type(value)(0))
    try:
        yield found
    finally:
        for layer, attribute, value in changed:
            setattr(layer, attribute, value)


def _attributes(layer: torch.nn.Module) -> tuple[str, ...]:
    """The attributes that say how much a module drops."""
    if isinstance(layer, torch.nn.modules.dropout._DropoutNd) or type(layer).__name__ == "StochasticDepth":
        return ("p",)
    if isinstance(layer, torch.nn.MultiheadAttention | torch.nn.RNNBase):
        return ("dropout",)
    return DROPS
