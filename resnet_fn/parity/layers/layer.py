"""Describe one recorded execution of a layer as plain data, for either framework."""

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

    name: str  # the path in the net, for example "layer1.0.relu"
    call: int  # how many times the layer had run before
    kind: str  # the same word for both frameworks, for example "conv" or "norm" (`kind_of`)
    class_name: str  # the class in its framework
    settings: dict[str, Any]  # settings under names that both frameworks share (`settings`)
    # input, output: the first input and first output, float64; None if there is no tensor
    input: np.ndarray | None
    output: np.ndarray | None
    parameters: Shapes  # (leaf name, shape) of the layer's own parameters and statistics
    leaf: bool  # whether no recorded layer runs inside the layer
    # input_rounding, output_rounding: relative errors of input and output against float64
    input_rounding: float = 0.0
    output_rounding: float = 0.0
    # for kinds in `WHOLE`: fingerprints of the inputs after the first, such as an attention's key
    # and value
    further: tuple[str, ...] = ()

    @property
    def is_own(self) -> bool:
        """Whether the layer's class belongs to neither framework."""
        return self.kind.startswith(f"{OWN} ")

    def owned(self) -> list[str]:
        """Return the full names of the layer's parameters."""
        return [f"{self.name}.{leaf}" for leaf, _ in self.parameters]

    @property
    def title(self) -> str:
        """The layer's name.

        From the second call on, the number of the call follows, as in "layer1.0.relu (2)".
        """
        return title_of(self.name, self.call)


def title_of(name: str, call: int) -> str:
    """Return the title of one execution of the layer `name`.

    `call` is the number of earlier executions.
    """
    return f"{name} ({call + 1})" if call else name


# Kinds by the class's name in either framework, without its dimensions: Conv2d and Conv1d are Conv.
_KINDS = {
    "Conv": "conv",
    "ConvTranspose": "transposed conv",
    **dict.fromkeys(
        ("BatchNorm", "SyncBatchNorm", "GroupNorm", "LayerNorm", "InstanceNorm"), "norm"
    ),
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
# Kinds that are recorded as one, without what runs inside: the frameworks build them from different
# parts.
WHOLE = ("attention", "lstm", "gru", "rnn", "norm", "dense")


def kind_of(layer: Any) -> str:
    """Return a layer's kind: a word such as "conv" for both frameworks, or else the class's name in
    lower case.

    A class derived from a framework's layer has the framework layer's kind. A user's class without
    inner layers has the kind that `_KINDS` gives for its name. All other classes of users have a
    kind such as "own block" for Block.
    """
    for class_ in type(layer).__mro__:
        name = re.sub(r"^Parametrized|[123]d|Ext$", "", class_.__name__)
        ours = class_.__module__.partition(".")[0] not in ("torch", "mindspore")
        if name in _KINDS and not (ours and parts_of(layer)):
            return _KINDS[name]
        if (
            not ours
            and class_.__name__ not in ("Module", "Cell", "Cell_")
            and not class_.__name__.startswith("_")
        ):
            return name.lower()
    return f"{OWN} {type(layer).__name__.lower()}"


def parts_of(layer: Any) -> Mapping[str, Any]:
    """Return the layers inside a layer by name."""
    return getattr(layer, "_modules", None) or getattr(layer, "_cells", None) or {}


def fingerprint(array: np.ndarray) -> str:
    """Return a hash of an array's numbers, which does not depend on the shape."""
    return hashlib.blake2b(
        np.ascontiguousarray(array, np.float32).tobytes(), digest_size=16
    ).hexdigest()
