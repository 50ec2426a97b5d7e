"""How a MindSpore cell is set, in the words that both frameworks share (`resnet_fn.parity.settings`).

The classes of `mindspore.nn` and of `mindspore.mint.nn` keep the same things under other names.
"""

import math
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
    """How a cell is set, see `describe_layer`.

    Args:
        layer: the cell.
        image: its first input; `same` pads as it falls on this size.
    """
    return describe_layer(_DESCRIBE, "mindspore", layer, image)


def _conv(layer: Any, image: np.ndarray | None) -> dict[str, Any]:
    count = directions(layer, image)
    mint = hasattr(layer, "groups")
    found: dict[str, Any] = {
        "kernel_size": spread(layer.kernel_size, count),
        "stride": spread(layer.stride, count),
        "dilation": spread(layer.dilation, count),
        "groups": layer.groups if mint else layer.group,
        "bias": layer.bias is not None if mint else bool(layer.has_bias),
        "padding_mode": layer.padding_mode if mint else "zeros",
    }
    if image is not None:
        found |= {"pads": mindspore_pads(layer, image.shape[-count:]), "pad_mode": _pad_mode(layer)}
    return found


def _pad_mode(layer: Any) -> str:
    if hasattr(layer, "pad_mode"):
        return str(layer.pad_mode).lower()
    return layer.padding if isinstance(layer.padding, str) else "pad"  # mint's have torch's padding


def mindspore_pads(layer: Any, size: Sequence[int]) -> Pads | None:
    """How many zeros a MindSpore convolution or pool adds before and after on an input of this size.

    None where the layer does not say.
    """
    count, mode = len(size), _pad_mode(layer)
    if mode == "valid":
        return (0,) * 2 * count
    if mode == "pad":
        return _given_padding(layer, count)
    pads: list[int] = []
    dilation = spread(getattr(layer, "dilation", 1), count)
    sliding = zip(size, spread(layer.kernel_size, count), spread(layer.stride, count), dilation, strict=True)
    for extent, kernel, stride, spread_by in sliding:
        # What TensorFlow calls SAME: ⌈extent / stride⌉ outputs, the odd zero at the end.
        total = max((math.ceil(extent / stride) - 1) * stride + spread_by * (kernel - 1) + 1 - extent, 0)
        pads += [total // 2, total - total // 2]
    return tuple(pads)


def _given_padding(layer: Any, count: int) -> Pads | None:
    """The `padding` argument, spread: one number, one for each direction (mint, max pools), or one for each side."""
    padding = getattr(layer, "padding", None)
    if padding is None:  # nn.AvgPool2d and nn.MaxPool3d keep it in their operation only
        kept = _operation(layer)
        padding = kept.get("pad", kept.get("pad_list", kept.get("pads")))
    if padding is None:
        return None
    if isinstance(padding, int):
        return (padding,) * 2 * count
    if kind_of(layer) == "maxpool" or len(padding) < 2 * count:
        return tuple(one for one in padding[-count:] for _ in ("before", "after"))
    return tuple(padding[-2 * count :])


def _operation(layer: Any) -> dict[str, Any]:
    """What a cell's operation was made with: the one that does the work, not those that reshape for it."""
    kept: dict[str, Any] = {}
    for name, operation in layer._primitives.items():
        if name.startswith(("avg_pool", "max_pool", "adaptive_", "softmax", "log_softmax", "elu", "celu")):
            kept |= getattr(operation, "init_attrs", {})
    return kept


def _transposed(layer: Any, image: np.ndarray | None) -> dict[str, Any]:
    """`pads` are what is cut off the full product of size (n − 1) · stride + kernel, as in torch."""
    count = directions(layer, image)
    found = {**_conv(layer, image), "transposed": True}
    found["pad_mode"] = mode = _pad_mode(layer)
    more = spread(getattr(layer, "output_padding", 0), count)
    if mode == "pad":
        pads = list(_given_padding(layer, count) or (0,) * 2 * count)
        if type(layer).__name__ == "Conv2dTranspose":
            found |= {"zeros_after": more} if any(more) else {}  # appended to what is computed
        pads[1::2] = [cut - extra for cut, extra in zip(pads[1::2], more, strict=True)]
    else:
        pads = []
        for kernel, stride, dilation in zip(found["kernel_size"], found["stride"], found["dilation"], strict=True):
            total = dilation * (kernel - 1) + 1 - stride
            pads += [total // 2, total - total // 2] if mode == "same" else [0, min(total, 0)]
    return found | {"pads": tuple(pads)}


def _pool(layer: Any, image: np.ndarray | None) -> dict[str, Any]:
    count = directions(layer, image)
    size = image.shape[-count:] if image is not None else None
    operation = _operation(layer)
    if "Adaptive" in type(layer).__name__:
        output: Any = getattr(layer, "output_size", operation.get("output_size"))
        output = output.asnumpy().tolist() if hasattr(output, "asnumpy") else output
        return adaptive_pool(output if isinstance(output, Sequence) else (output,) * count, size) if size else {}
    kernel = spread(layer.kernel_size, count)
    stride = kernel if layer.stride is None else spread(layer.stride, count)
    found: dict[str, Any] = {"kernel_size": kernel, "stride": stride}
    if kind_of(layer) == "maxpool":
        found["dilation"] = spread(getattr(layer, "dilation", operation.get("dilation", 1)), count)
    if size:
        found |= {"pads": mindspore_pads(layer, size), "pad_mode": _pad_mode(layer)}
        ceil = bool(getattr(layer, "ceil_mode", operation.get("ceil_mode", False)))
        found["ceil_mode"] = ceil and ceil_matters(size, kernel, stride, found["pads"] or (0,) * 2 * count)
        if not slides(kernel, size, found["pads"]):
            del found["stride"]
    if kind_of(layer) == "avgpool":
        found["divisor_override"] = getattr(layer, "divisor_override", operation.get("divisor_override")) or None
        if any(found.get("pads") or ()):  # `same` never counts its zeros
            counts = getattr(layer, "count_include_pad", operation.get("count_include_pad", True))
            found["count_include_pad"] = bool(counts) and found["pad_mode"] != "same"
    return found


def _norm(layer: Any, image: np.ndarray | None) -> dict[str, Any]:
    layer = getattr(layer, "bn2d", layer)  # nn.BatchNorm3d is one around a BatchNorm2d
    name = " ".join(class_.__name__ for class_ in type(layer).__mro__)
    if "LayerNorm" in name:
        # A class of the user's that is derived from it turns its input first, as ConvNeXts do.
        own = type(layer).__module__.partition(".")[0] == "mindspore"
        axis = getattr(layer, "begin_norm_axis", None) if own else None
        shape = layer.normalized_shape if axis is None or image is None else image.shape[axis:]
        eps = layer.epsilon if hasattr(layer, "epsilon") else layer.eps
        return {"eps": float(eps), "over": "layer", "normalized_shape": tuple(shape)}
    found: dict[str, Any] = {"eps": float(layer.eps)}
    if "GroupNorm" in name:
        return {**found, "over": "group", "num_groups": layer.num_groups}
    if "InstanceNorm" in name:
        return {**found, "over": "group", "num_groups": layer.num_features}
    tracks = getattr(layer, "track_running_stats", True)
    always = {None: "in training" if tracks else "always", True: "always", False: "never"}
    found |= {"over": "batch", "batch_statistics": always[getattr(layer, "use_batch_statistics", None)]}
    # The cell keeps what the new statistics weigh, as torch means it; nn.BatchNorm2d's argument was 1 − that.
    return found | ({} if layer.momentum is None else {"momentum": float(layer.momentum)})


def _dense(layer: Any, image: np.ndarray | None) -> dict[str, Any]:
    return {"bias": bool(layer.has_bias), "activation": str(getattr(layer, "activation", None) or "")}


def _embedding(layer: Any, image: np.ndarray | None) -> dict[str, Any]:
    found = {name: getattr(layer, name, None) for name in ("padding_idx", "max_norm")}
    return {**found, "scale_grad_by_freq": bool(getattr(layer, "scale_grad_by_freq", False))}


def _recurrent(layer: Any, image: np.ndarray | None) -> dict[str, Any]:
    found = {name: getattr(layer, name) for name in ("hidden_size", "num_layers", "bidirectional", "batch_first")}
    relu = "Relu" in type(layer.rnn).__name__
    kind = {"nonlinearity": "relu" if relu else "tanh"} if kind_of(layer) == "rnn" else {}
    return {**found, **kind, "bias": layer.has_bias, "proj_size": 0, "p": float(layer.dropout)}


def _softmax(layer: Any, image: np.ndarray | None) -> dict[str, Any]:
    axis = -3 if "2d" in type(layer).__name__ else getattr(layer, "dim", _operation(layer).get("axis"))
    if axis is None or image is None:
        return {}
    return {"axis": int(np.ravel(axis)[0]) % image.ndim}


def _upsample(layer: Any, image: np.ndarray | None) -> dict[str, Any]:
    fixed = {"UpsamplingNearest2d": ("nearest", False), "UpsamplingBilinear2d": ("bilinear", True)}
    mode, corners = fixed.get(type(layer).__name__) or (layer.mode, bool(layer.align_corners))
    found: dict[str, Any] = {"mode": mode, "align_corners": corners}
    return found if image is None else found | {"size": resized(layer, image)}


def dropped(layer: Any) -> float:
    """The share that a dropout cell drops: `nn.Dropout(0.9)` keeps 0.9, `nn.Dropout(p=0.9)` and mint's drop 0.9."""
    for name in ("p", "prob"):
        if getattr(layer, name, None) is not None:
            return float(getattr(layer, name))
    return 1.0 - float(layer.keep_prob)


_DESCRIBE: dict[str, Any] = {
    "conv": _conv,
    "transposed conv": _transposed,
    "maxpool": _pool,
    "avgpool": _pool,
    "norm": _norm,
    "dense": _dense,
    "embedding": _embedding,
    "attention": attention,
    **dict.fromkeys(("lstm", "gru", "rnn"), _recurrent),
    "gelu": lambda layer, _: {"approximate": getattr(layer, "approximate", "sigmoid")},  # FastGelu: x σ(1.702 x)
    "leakyrelu": lambda layer, _: {"slope": float(layer.alpha)},
    **dict.fromkeys(
        ("elu", "celu"), lambda layer, _: {"alpha": float(getattr(layer, "alpha", _operation(layer).get("alpha", 1.0)))}
    ),
    "hardtanh": lambda layer, _: {"min": float(layer.min_val), "max": float(layer.max_val)},
    **dict.fromkeys(("softmax", "logsoftmax"), _softmax),
    "upsample": _upsample,
    "dropout": lambda layer, _: {"p": dropped(layer)},
    "drop path": lambda layer, _: {"p": float(getattr(layer, "drop_prob", 0.0))},
}
