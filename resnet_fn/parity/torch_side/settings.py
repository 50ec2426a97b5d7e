"""How a torch module is set, in the words that both frameworks share (`resnet_fn.parity.settings`)."""

from typing import Any

import numpy as np

from resnet_fn.parity.layer import kind_of
from resnet_fn.parity.settings import Pads, pair


def settings_of(layer: Any, images: np.ndarray | None) -> dict[str, Any]:
    """How a module is set.

    Args:
        layer: the module.
        images: its first input.
    """
    kind = kind_of(layer)
    if kind in ("conv", "maxpool", "avgpool") and hasattr(layer, "kernel_size"):
        found: dict[str, Any] = {"kernel_size": pair(layer.kernel_size), "stride": pair(layer.stride)}
        if kind == "conv":
            found |= {"dilation": pair(layer.dilation), "groups": layer.groups, "bias": layer.bias is not None}
        if images is not None and images.ndim == 4:
            found["pads"] = torch_pads(layer)
        return found
    if kind == "norm":
        momentum = getattr(layer, "momentum", None)
        return {"eps": float(layer.eps)} | ({} if momentum is None else {"momentum": float(momentum)})
    if kind == "dense":
        return {"bias": layer.bias is not None, "activation": ""}
    return {}


def torch_pads(layer: Any) -> Pads:
    """How many zeros a torch convolution or pool adds on each side."""
    if layer.padding == "valid":
        return (0, 0, 0, 0)
    if layer.padding == "same":
        totals = [d * (k - 1) for d, k in zip(pair(layer.dilation), pair(layer.kernel_size), strict=True)]
        rows, columns = totals
        return (rows // 2, rows - rows // 2, columns // 2, columns - columns // 2)
    rows, columns = pair(layer.padding)
    return (rows, rows, columns, columns)
