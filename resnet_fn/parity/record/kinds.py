"""Name the kind of a live layer by the same word for both frameworks."""

import re
from collections.abc import Mapping
from typing import Any

from resnet_fn.parity.trace.layer import OWN

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
