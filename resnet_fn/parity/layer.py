"""One recorded execution of a layer, of either framework: plain data."""

import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

Shapes = tuple[tuple[str, tuple[int, ...]], ...]


@dataclasses.dataclass
class Layer:
    """One execution of a layer.

    Attributes:
        name: its path in the net; "layer1.0.relu".
        call: how many times the layer had run before.
        kind: what it is, in either framework: "conv", "norm", "dense", "relu", "maxpool", "avgpool", or its class.
        class_name: its class in its framework.
        settings: how it is set, in words that both frameworks share (`settings`).
        input, output: its first input and its output, float64; None for what is not one tensor.
        parameters: (leaf name, shape) of the parameters that it owns, statistics included.
        leaf: whether no recorded layer runs inside it.
        input_rounding, output_rounding: how far input and output are from those computed in float64, relatively.
    """

    name: str
    call: int
    kind: str
    class_name: str
    settings: dict[str, Any]
    input: np.ndarray | None
    output: np.ndarray | None
    parameters: Shapes
    leaf: bool
    input_rounding: float = 0.0
    output_rounding: float = 0.0

    @property
    def title(self) -> str:
        """The name, with the call's number from the second call on: "layer1.0.relu (2)"."""
        return self.name if not self.call else f"{self.name} ({self.call + 1})"


_KINDS = {
    "Conv": "conv",
    "BatchNorm": "norm",
    "GroupNorm": "norm",
    "LayerNorm": "norm",
    "Linear": "dense",
    "Dense": "dense",
    "MaxPool": "maxpool",
    "AvgPool": "avgpool",
    "AdaptiveAvgPool": "avgpool",
    "ReLU": "relu",
}


def kind_of(layer: Any) -> str:
    """What a layer is, the same word in both frameworks; its class's name where there is none."""
    name = type(layer).__name__
    return next((kind for prefix, kind in _KINDS.items() if name.startswith(prefix) and name != "ReLU6"), name.lower())


def fingerprint(array: np.ndarray) -> str:
    """A digest by which a layer's input is recognised as another layer's output."""
    return hashlib.blake2b(np.ascontiguousarray(array, np.float32).tobytes(), digest_size=16).hexdigest()


def recording_hook(
    visit: Callable[[Layer], None],
    name: str,
    shapes: Shapes,
    leaf: bool,
    convert: Callable[[Any], np.ndarray],
    settings: Callable[[Any, np.ndarray | None], dict[str, Any]],
) -> Callable[[Any, Any, Any], None]:
    """A forward hook, of either framework, that gives every execution of its layer to `visit`.

    Args:
        visit: is called with each execution.
        name, shapes, leaf: as in `Layer`.
        convert: a tensor as a float64 array.
        settings: (layer, its first input) → how it is set.
    """
    calls = 0

    def array(value: Any) -> np.ndarray | None:
        return convert(value) if hasattr(value, "shape") and hasattr(value, "dtype") else None

    def hook(layer: Any, inputs: Any, output: Any) -> None:
        nonlocal calls
        first = array(inputs[0] if isinstance(inputs, tuple) and inputs else inputs)
        kind, set_as = kind_of(layer), settings(layer, first)
        visit(Layer(name, calls, kind, type(layer).__name__, set_as, first, array(output), shapes, leaf))
        calls += 1

    return hook
