"""One recorded execution of a layer, of either framework: plain data."""

import dataclasses
import hashlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

TOLERANCE = 1e-5  # relative error of a layer's output or input that passes
Shapes = tuple[tuple[str, tuple[int, ...]], ...]


@dataclasses.dataclass
class Layer:
    """One execution of a layer."""

    name: str  # its path in the net; "layer1.0.relu"
    call: int  # how many times the layer had run before
    kind: str  # the same word for both frameworks: "conv", "norm", "dense", "attention", …, or its class (`kind_of`)
    class_name: str  # its class in its framework
    settings: dict[str, Any]  # its settings under names that both frameworks share (`settings`)
    # input, output: its first input and first output, float64; None if there is no tensor
    input: np.ndarray | None
    output: np.ndarray | None
    parameters: Shapes  # (leaf name, shape) of the parameters that it owns, statistics included
    leaf: bool  # whether no recorded layer runs inside it
    # input_rounding, output_rounding: relative distance of input and output from those computed in float64
    input_rounding: float = 0.0
    output_rounding: float = 0.0
    # for kinds in `WHOLE`: fingerprints of the inputs after the first, such as an attention's key and value
    further: tuple[str, ...] = ()

    @property
    def is_own(self) -> bool:
        """Whether the layer's class belongs to neither framework."""
        return self.kind.startswith(f"{OWN} ")

    def owned(self) -> list[str]:
        """The full names of the layer's parameters."""
        return [f"{self.name}.{leaf}" for leaf, _ in self.parameters]

    @property
    def title(self) -> str:
        """The name, with the call's number from the second call on: "layer1.0.relu (2)"."""
        return title_of(self.name, self.call)


def title_of(name: str, call: int) -> str:
    """The title of a layer that had run `call` times before."""
    return f"{name} ({call + 1})" if call else name


# Kinds by the class's name in either framework, without its dimensions: Conv2d and Conv1d are Conv.
_KINDS = {
    "Conv": "conv",
    "ConvTranspose": "transposed conv",
    **dict.fromkeys(("BatchNorm", "SyncBatchNorm", "GroupNorm", "LayerNorm", "InstanceNorm"), "norm"),
    **dict.fromkeys(("Linear", "Dense", "NonDynamicallyQuantizableLinear"), "dense"),
    **dict.fromkeys(("MaxPool", "AdaptiveMaxPool"), "maxpool"),
    **dict.fromkeys(("AvgPool", "AdaptiveAvgPool"), "avgpool"),
    **dict.fromkeys(("Dropout", "AlphaDropout", "FeatureAlphaDropout"), "dropout"),
    **dict.fromkeys(("DropPath", "StochasticDepth"), "drop path"),
    **dict.fromkeys(("Upsample", "UpsamplingNearest", "UpsamplingBilinear"), "upsample"),
    **dict.fromkeys(("GELU", "FastGelu"), "gelu"),
    **dict.fromkeys(("Hardswish", "HSwish"), "hardswish"),
    **dict.fromkeys(("Hardsigmoid", "HSigmoid"), "hardsigmoid"),
    "MultiheadAttention": "attention",
    "BiDense": "bilinear",
    "EmbeddingLookup": "embedding",
}
OWN = "own"  # the first word of the kind of a user's class
# Kinds that are recorded as one, without what runs inside: the frameworks build them from different parts.
WHOLE = ("attention", "lstm", "gru", "rnn", "norm", "dense")


def kind_of(layer: Any) -> str:
    """A layer's kind, the same word for both frameworks; its class's name in lower case if there is no such word.

    A class derived from a framework's layer has that layer's kind. The name of a user's class counts only if the class
    has no layers inside. The kind of any other class is "own" and the class's name.
    """
    for class_ in type(layer).__mro__:
        name = re.sub(r"^Parametrized|[123]d|Ext$", "", class_.__name__)
        ours = class_.__module__.partition(".")[0] not in ("torch", "mindspore")
        if name in _KINDS and not (ours and parts_of(layer)):
            return _KINDS[name]
        if not ours and class_.__name__ not in ("Module", "Cell", "Cell_") and not class_.__name__.startswith("_"):
            return name.lower()
    return f"{OWN} {type(layer).__name__.lower()}"


def parts_of(layer: Any) -> Mapping[str, Any]:
    """The layers inside a layer, by name."""
    return getattr(layer, "_modules", None) or getattr(layer, "_cells", None) or {}


def fingerprint(array: np.ndarray) -> str:
    """A digest by which a layer's input is recognised as another layer's output, whatever their shapes."""
    return hashlib.blake2b(np.ascontiguousarray(array, np.float32).tobytes(), digest_size=16).hexdigest()
