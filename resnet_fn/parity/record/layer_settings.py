"""Read the settings of a layer under names that both frameworks share."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from resnet_fn.parity.record.kinds import kind_of
from resnet_fn.parity.trace.layer import LayerSettings, Pads, same_pads


def settings_of(layer: Any, image: np.ndarray | None) -> LayerSettings:
    """Return a layer's settings, or {} if none are known. `image` is the layer's first input."""
    function = _TABLE.get(kind_of(layer))
    try:
        settings = function(layer, image) if function else {}
    except AttributeError:
        if type(layer).__module__.partition(".")[0] in ("torch", "mindspore"):
            raise
        return {}
    return {name: _plain(value) for name, value in settings.items()}


def _plain(value: Any) -> Any:
    """Return a setting with Python's numbers instead of NumPy's."""
    if isinstance(value, tuple | list):
        numbers = [_plain(item) for item in value]
        return numbers if isinstance(value, list) else tuple(numbers)
    if isinstance(value, np.generic):
        return value.item()
    return value


def _conv(layer: Any, image: np.ndarray | None) -> LayerSettings:
    count = _directions(layer, image)
    settings: LayerSettings = {}
    for name in ("kernel_size", "stride", "dilation"):
        settings[name] = _spread(getattr(layer, name), count)
    settings["groups"] = layer.groups if hasattr(layer, "groups") else layer.group
    settings["bias"] = _has_bias(layer)
    settings["padding_mode"] = getattr(layer, "padding_mode", "zeros")
    if image is not None:
        settings |= _padding(layer, image.shape[-count:])
    return settings


def _has_bias(layer: Any) -> bool:
    if hasattr(layer, "has_bias"):
        return bool(layer.has_bias)
    return layer.bias is not None


def _padding(layer: Any, size: Sequence[int]) -> LayerSettings:
    settings: LayerSettings = {"pads": pads_of(layer, size)}
    if hasattr(layer, "pad_mode"):  # in MindSpore
        settings["pad_mode"] = _pad_mode(layer)
    return settings


def _pad_mode(layer: Any) -> str:
    if hasattr(layer, "pad_mode"):
        return str(layer.pad_mode).lower()
    if isinstance(layer.padding, str):  # in torch and mint
        return layer.padding
    return "pad"


def pads_of(layer: Any, size: Sequence[int]) -> Pads | None:
    """Return the zeros that a convolution or pool adds around an input of this size, or None if
    unknown.
    """
    count = len(size)
    mode = _pad_mode(layer)
    if mode == "valid":
        return (0,) * 2 * count
    if mode == "pad":
        return _given_padding(layer, count)
    pads: list[int] = []
    windows = []
    for name in ("kernel_size", "stride", "dilation"):
        value = getattr(layer, name, 1)
        windows.append(_spread(value, count))
    for extent, kernel, stride, dilation in zip(size, *windows, strict=True):
        pads += same_pads(extent, kernel, stride, dilation)
    return tuple(pads)


def _given_padding(layer: Any, count: int) -> Pads | None:
    """Return the layer's argument `padding` as pads in `count` directions."""
    # nn.AvgPool2d has it in its operation only
    padding = _plain(_read(layer, "padding", "pad", "pad_list", "pads"))
    # a user's class may give these names to other things
    if not isinstance(padding, int | tuple | list):
        return None
    if isinstance(padding, int):
        return (padding,) * 2 * count
    if kind_of(layer) == "maxpool" or len(padding) < 2 * count:
        return tuple(pad for pad in padding[-count:] for _ in ("before", "after"))
    return tuple(padding[-2 * count :])


_COMPUTING = (
    "avg_pool",
    "max_pool",
    "adaptive_",
    "softmax",
    "log_softmax",
    "elu",
    "celu",
)


def _read(layer: Any, *names: str) -> Any:
    """Look `names` up in a layer, then in its MindSpore primitives such as avg_pool.

    Return the first value or None.
    """
    operations = [
        getattr(operation, "init_attrs", {})
        for name, operation in getattr(layer, "_primitives", {}).items()
        # leaves out operations that only reshape
        if name.startswith(_COMPUTING)
    ]
    values = [getattr(layer, name, None) for name in names]
    values += [attributes.get(name) for attributes in reversed(operations) for name in names]
    return next((value for value in values if value is not None), None)


def _transposed(layer: Any, image: np.ndarray | None) -> LayerSettings:
    """Return a transposed convolution's settings.

    `pads` are cut off (input size − 1) · stride + kernel output rows.
    """
    count = _directions(layer, image)
    settings = {**_conv(layer, image), "transposed": True}
    mode = _pad_mode(layer)
    more = _spread(getattr(layer, "output_padding", 0), count)
    if mode == "pad":
        pads = list(_given_padding(layer, count) or (0,) * 2 * count)
        if type(layer).__name__ == "Conv2dTranspose":
            settings |= {"zeros_after": more} if any(more) else {}  # appended to the output
        pads[1::2] = [cut - extra for cut, extra in zip(pads[1::2], more, strict=True)]
    else:
        pads = []
        for kernel, stride, dilation in zip(
            *(settings[n] for n in ("kernel_size", "stride", "dilation")), strict=True
        ):
            total = dilation * (kernel - 1) + 1 - stride
            if mode == "same":
                pads += [total // 2, total - total // 2]
            else:
                pads += [0, min(total, 0)]
    return settings | {"pads": tuple(pads)}


def _pool(layer: Any, image: np.ndarray | None) -> LayerSettings:
    count = _directions(layer, image)
    if hasattr(layer, "output_size") or "Adaptive" in type(layer).__name__:
        output = _read(layer, "output_size")
        output = output.numpy().tolist() if hasattr(output, "numpy") else output
        return {"output_size": tuple(output) if isinstance(output, Sequence) else (output,) * count}
    kernel = _spread(layer.kernel_size, count)
    settings: LayerSettings = {
        "kernel_size": kernel,
        "stride": _spread(layer.stride or kernel, count),
    }
    settings["ceil_mode"] = bool(_read(layer, "ceil_mode"))
    if image is not None:
        settings |= _padding(layer, image.shape[-count:])
    if kind_of(layer) == "maxpool":
        settings["dilation"] = _spread(_read(layer, "dilation") or 1, count)
        return settings
    if any(settings.get("pads") or ()):  # `same` never counts its zeros
        settings["count_include_pad"] = (
            _read(layer, "count_include_pad") is not False and _pad_mode(layer) != "same"
        )
    return settings | {"divisor_override": _read(layer, "divisor_override") or None}


def _norm(layer: Any, image: np.ndarray | None) -> LayerSettings:
    layer = getattr(layer, "bn2d", layer)  # MindSpore's BatchNorm3d is a cell around a BatchNorm2d
    name = _class_names(layer)
    settings: LayerSettings = {
        "eps": float(layer.epsilon if hasattr(layer, "epsilon") else layer.eps)
    }
    if "LayerNorm" in name:
        # A user's class that is derived from MindSpore's may transpose its input first, as in
        # ConvNeXt.
        of_mindspore = type(layer).__module__.partition(".")[0] == "mindspore"
        axis = getattr(layer, "begin_norm_axis", None) if of_mindspore else None
        shape = layer.normalized_shape if axis is None or image is None else image.shape[axis:]
        return {**settings, "over": "layer", "normalized_shape": tuple(shape)}
    if "GroupNorm" in name:
        return {**settings, "over": "group", "num_groups": layer.num_groups}
    if "InstanceNorm" in name:
        channels = 0 if image is None else image.shape[1]
        return {**settings, "over": "group", "num_groups": layer.num_features or channels}
    tracks = getattr(layer, "track_running_stats", True)
    always = {None: "in training" if tracks else "always", True: "always", False: "never"}
    settings |= {
        "over": "batch",
        "batch_statistics": always[getattr(layer, "use_batch_statistics", None)],
    }
    # MindSpore's cell stores the weight of the new statistics, which is 1 − the argument of
    # nn.BatchNorm2d.
    return settings | ({} if layer.momentum is None else {"momentum": float(layer.momentum)})


def _attention(layer: Any, image: np.ndarray | None) -> LayerSettings:
    return {
        "num_heads": layer.num_heads,
        "bias": layer.in_proj_bias is not None,
        "add_bias_kv": layer.bias_k is not None,
        "add_zero_attn": bool(layer.add_zero_attn),
        "batch_first": bool(layer.batch_first),
    }


def _recurrent(layer: Any, image: np.ndarray | None) -> LayerSettings:
    settings = {}
    for name in ("hidden_size", "num_layers", "bidirectional", "batch_first"):
        settings[name] = getattr(layer, name)
    if kind_of(layer) == "rnn":
        relu = "Relu" in type(getattr(layer, "rnn", None)).__name__
        settings["nonlinearity"] = getattr(layer, "nonlinearity", "relu" if relu else "tanh")
    bias = layer.has_bias if hasattr(layer, "has_bias") else layer.bias
    return {**settings, "bias": bias, "proj_size": getattr(layer, "proj_size", 0)}


def _softmax(layer: Any, image: np.ndarray | None) -> LayerSettings:
    axis = -3 if "2d" in type(layer).__name__ else _read(layer, "dim", "axis")
    if axis is None or image is None:
        return {}
    first = int(np.ravel(axis)[0])
    return {"axis": first % image.ndim}


def _upsample(layer: Any, image: np.ndarray | None) -> LayerSettings:
    fixed = {"UpsamplingNearest2d": ("nearest", False), "UpsamplingBilinear2d": ("bilinear", True)}
    name = type(layer).__name__
    mode, corners = fixed.get(name) or (layer.mode, bool(layer.align_corners))
    return {"mode": mode, "align_corners": corners}  # the output's shape shows the size


def _spread(value: Any, count: int) -> tuple[int, ...]:
    """Return a setting as one number for each of `count` directions."""
    # MindSpore stores (1, k) for one direction, so the last numbers of a longer tuple count.
    if not isinstance(value, tuple | list):
        return (int(value),) * count
    values = tuple(int(number) for number in value)
    more = max(len(values) - count, 0)
    return values[more:]


def _class_names(layer: Any) -> str:
    """Return the names of the layer's class and of those it is derived from."""
    return " ".join(class_.__name__ for class_ in type(layer).__mro__)


def _directions(layer: Any, image: np.ndarray | None) -> int:
    """Return the number of directions in which a convolution or pool slides."""
    if named := re.search("([123])d", _class_names(layer)):
        return int(named[1])
    return max(1, image.ndim - 2) if image is not None else 2


# Kind → numeric setting → the attributes that may store the setting's value.
_NUMBERS: dict[str, dict[str, Sequence[str]]] = {
    "leakyrelu": {"slope": ("negative_slope", "alpha")},
    "elu": {"alpha": ("alpha",)},
    "celu": {"alpha": ("alpha",)},
    "hardtanh": {"min": ("min_val",), "max": ("max_val",)},
    "softplus": {"beta": ("beta",), "threshold": ("threshold",)},
}


def _numbers(layer: Any, image: np.ndarray | None) -> LayerSettings:
    settings = {}
    for word, names in _NUMBERS[kind_of(layer)].items():
        value = _read(layer, *names)
        if value is not None:
            settings[word] = float(value)
    return settings


_TABLE: dict[str, Callable[[Any, Any], LayerSettings]] = {
    "conv": _conv,
    "transposed conv": _transposed,
    **dict.fromkeys(("maxpool", "avgpool"), _pool),
    "norm": _norm,
    "dense": lambda layer, _: {
        "bias": _has_bias(layer),
        "activation": str(getattr(layer, "activation", None) or ""),
    },
    "embedding": lambda layer, _: {
        **{name: getattr(layer, name, None) for name in ("padding_idx", "max_norm")},
        "scale_grad_by_freq": bool(getattr(layer, "scale_grad_by_freq", False)),
    },
    "attention": _attention,
    **dict.fromkeys(("lstm", "gru", "rnn"), _recurrent),
    # FastGelu: x σ(1.702 x)
    "gelu": lambda layer, _: {"approximate": getattr(layer, "approximate", "sigmoid")},
    **dict.fromkeys(_NUMBERS, _numbers),
    **dict.fromkeys(("softmax", "logsoftmax"), _softmax),
    "upsample": _upsample,
}
