"""How a MindSpore cell is set, in the words that both frameworks share (`resnet_fn.parity.settings`)."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from resnet_fn.parity.layer import kind_of
from resnet_fn.parity.settings import Pads, pair


def settings_of(layer: Any, images: np.ndarray | None) -> dict[str, Any]:
    """How a cell is set.

    Args:
        layer: the cell.
        images: its first input; `same` pads as it falls on this size.
    """
    kind = kind_of(layer)
    if kind in ("conv", "maxpool", "avgpool") and hasattr(layer, "kernel_size"):
        found: dict[str, Any] = {"kernel_size": pair(layer.kernel_size), "stride": pair(layer.stride)}
        if kind == "conv":
            found |= {"dilation": pair(layer.dilation), "groups": layer.group, "bias": bool(layer.has_bias)}
        if images is not None and images.ndim == 4:
            found |= {"pads": mindspore_pads(layer, images.shape[2:]), "pad_mode": str(layer.pad_mode).lower()}
        return found
    if kind == "norm":
        found = {"eps": float(layer.eps)}
        # The cell keeps what the new statistics weigh, as torch means it; its argument was 1 − that.
        return found | ({"momentum": float(layer.momentum)} if hasattr(layer, "momentum") else {})
    if kind == "dense":
        return {"bias": bool(layer.has_bias), "activation": str(getattr(layer, "activation", None) or "")}
    return {}


def mindspore_pads(layer: Any, size: Sequence[int]) -> Pads | None:
    """How many zeros a MindSpore convolution or pool adds on each side of an input of height and width `size`.

    None where the layer does not say.
    """
    mode = str(layer.pad_mode).lower()
    if mode == "valid":
        return (0, 0, 0, 0)
    if mode == "pad":
        padding = getattr(layer, "padding", None)
        if padding is None:
            return None
        padding = (padding,) * 4 if isinstance(padding, int) else tuple(padding)
        if len(padding) == 3:  # MaxPool2d carries its depth first
            return (padding[1], padding[1], padding[2], padding[2])
        return padding if len(padding) == 4 else (padding[0], padding[0], padding[1], padding[1])
    pads: list[int] = []
    dilation = pair(getattr(layer, "dilation", 1))
    for extent, kernel, stride, spread in zip(size, pair(layer.kernel_size), pair(layer.stride), dilation, strict=True):
        # What TensorFlow calls SAME: ⌈extent / stride⌉ outputs, the odd zero at the end.
        total = max((math.ceil(extent / stride) - 1) * stride + spread * (kernel - 1) + 1 - extent, 0)
        pads += [total // 2, total - total // 2]
    return (pads[0], pads[1], pads[2], pads[3])
