"""How a torch module is set, in the words that both frameworks share (`resnet_fn.parity.settings`)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from resnet_fn.parity.describe import (
    Pads,
    adaptive_pool,
    attention,
    ceil_matters,
    describe_layer,
    directions,
    resized,
    slides,
    spread,
)
from resnet_fn.parity.traces.layer import kind_of


def settings_of(layer: Any, image: np.ndarray | None) -> dict[str, Any]:
    """How a module is set, see `describe_layer`.

    Args:
        layer: the module.
        image: its first input.
    """
    return describe_layer(_DESCRIBE, "torch", layer, image)


def _conv(layer: Any, image: np.ndarray | None) -> dict[str, Any]:
    count = directions(layer, image)
    return {
        "kernel_size": spread(layer.kernel_size, count),
        "stride": spread(layer.stride, count),
        "dilation": spread(layer.dilation, count),
        "groups": layer.groups,
        "bias": layer.bias is not None,
        "padding_mode": layer.padding_mode,
        "pads": torch_pads(layer),
    }


def _transposed(layer: Any, image: np.ndarray | None) -> dict[str, Any]:
    pads = list(torch_pads(layer))
    pads[1::2] = [cut - more for cut, more in zip(pads[1::2], layer.output_padding, strict=True)]
    return {**_conv(layer, image), "pads": tuple(pads), "transposed": True}


def torch_pads(layer: Any) -> Pads:
    """How many zeros a torch convolution or pool adds before and after, direction by direction."""
    count = directions(layer, None)
    if layer.padding == "valid":
        return (0,) * 2 * count
    if layer.padding == "same":
        kernel, dilation = spread(layer.kernel_size, count), spread(layer.dilation, count)
        totals = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        return tuple(pad for total in totals for pad in (total // 2, total - total // 2))
    return tuple(pad for each in spread(layer.padding, count) for pad in (each, each))


def _pool(layer: Any, image: np.ndarray | None) -> dict[str, Any]:
    count = directions(layer, image)
    size = image.shape[-count:] if image is not None else None
    if hasattr(layer, "output_size"):
        output = layer.output_size if isinstance(layer.output_size, Sequence) else (layer.output_size,) * count
        return adaptive_pool(output, size) if size else {}
    kernel, stride = spread(layer.kernel_size, count), spread(layer.stride, count)
    found: dict[str, Any] = {"kernel_size": kernel, "stride": stride, "pads": torch_pads(layer)}
    if hasattr(layer, "dilation"):
        found["dilation"] = spread(layer.dilation, count)
    if size:
        found["ceil_mode"] = bool(layer.ceil_mode) and ceil_matters(size, kernel, stride, found["pads"])
        if not slides(kernel, size, found["pads"]):
            del found["stride"]
    if hasattr(layer, "count_include_pad"):
        found["divisor_override"] = getattr(layer, "divisor_override", None)
        if any(found["pads"]):
            found["count_include_pad"] = layer.count_include_pad
    return found


def _norm(layer: Any, image: np.ndarray | None) -> dict[str, Any]:
    found: dict[str, Any] = {"eps": float(layer.eps)}
    name = " ".join(class_.__name__ for class_ in type(layer).__mro__)
    if "LayerNorm" in name:
        return {**found, "over": "layer", "normalized_shape": tuple(layer.normalized_shape)}
    if "GroupNorm" in name:
        return {**found, "over": "group", "num_groups": layer.num_groups}
    if "InstanceNorm" in name:
        return {**found, "over": "group", "num_groups": layer.num_features or (0 if image is None else image.shape[1])}
    found |= {"over": "batch", "batch_statistics": "in training" if layer.track_running_stats else "always"}
    return found | ({} if layer.momentum is None else {"momentum": float(layer.momentum)})


def _embedding(layer: Any, image: np.ndarray | None) -> dict[str, Any]:
    return {name: getattr(layer, name) for name in ("padding_idx", "max_norm", "scale_grad_by_freq")}


def _recurrent(layer: Any, image: np.ndarray | None) -> dict[str, Any]:
    found = {name: getattr(layer, name) for name in ("hidden_size", "num_layers", "bidirectional", "bias")}
    kind = {"nonlinearity": layer.nonlinearity} if kind_of(layer) == "rnn" else {}
    return {**found, **kind, "proj_size": layer.proj_size, "batch_first": layer.batch_first, "p": float(layer.dropout)}


def _softmax(layer: Any, image: np.ndarray | None) -> dict[str, Any]:
    axis = -3 if "2d" in type(layer).__name__ else layer.dim
    if axis is None or image is None:
        return {}
    return {"axis": axis % image.ndim}


def _upsample(layer: Any, image: np.ndarray | None) -> dict[str, Any]:
    found: dict[str, Any] = {"mode": layer.mode, "align_corners": bool(layer.align_corners)}
    return found if image is None else found | {"size": resized(layer, image)}


_DESCRIBE: dict[str, Any] = {
    "conv": _conv,
    "transposed conv": _transposed,
    "maxpool": _pool,
    "avgpool": _pool,
    "norm": _norm,
    "dense": lambda layer, _: {"bias": layer.bias is not None, "activation": ""},
    "embedding": _embedding,
    "attention": attention,
    **dict.fromkeys(("lstm", "gru", "rnn"), _recurrent),
    "gelu": lambda layer, _: {"approximate": layer.approximate},
    "leakyrelu": lambda layer, _: {"slope": float(layer.negative_slope)},
    **dict.fromkeys(("elu", "celu"), lambda layer, _: {"alpha": float(layer.alpha)}),
    "hardtanh": lambda layer, _: {"min": float(layer.min_val), "max": float(layer.max_val)},
    "softplus": lambda layer, _: {"beta": float(layer.beta), "threshold": float(layer.threshold)},
    **dict.fromkeys(("softmax", "logsoftmax"), _softmax),
    "upsample": _upsample,
    "dropout": lambda layer, _: {"p": float(layer.p)},
    "drop path": lambda layer, _: {"p": float(layer.drop_prob if hasattr(layer, "drop_prob") else layer.p)},
}
