"""A layer's settings in words that MindSpore and PyTorch share: one table for the classes of both.

`mindspore.nn`, `mindspore.mint.nn` and `torch.nn` have other names for the same settings: each function below describes
one kind of layer of all three.

The words: `pads` are the zeros before and after, in each direction, on this input (for a transposed convolution, the
rows that are cut off), `momentum` is the weight of the new statistics, as in torch; the others are torch's arguments.
"""

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from resnet_fn.parity.layers.layer import kind_of

Pads = tuple[int, ...]  # zeros added before and after, direction by direction: top, bottom, left, right
Settings = dict[str, Any]


def settings_of(layer: Any, image: np.ndarray | None) -> Settings:
    """Return a layer's settings; {} if its kind has none, or if a user's class lacks the attributes that are read.

    `image` is its first input, whose size decides the padding of `same`.
    """
    function = _TABLE.get(kind_of(layer))
    try:
        return function(layer, image) if function else {}
    except AttributeError:
        if type(layer).__module__.partition(".")[0] in ("torch", "mindspore"):
            raise
        return {}


def _conv(layer: Any, image: np.ndarray | None) -> Settings:
    count = _directions(layer, image)
    settings: Settings = {
        **{name: _spread(getattr(layer, name), count) for name in ("kernel_size", "stride", "dilation")},
        "groups": layer.groups if hasattr(layer, "groups") else layer.group,
        "bias": _has_bias(layer),
        "padding_mode": getattr(layer, "padding_mode", "zeros"),
    }
    return settings if image is None else settings | _padding(layer, image.shape[-count:])


def _has_bias(layer: Any) -> bool:
    return bool(layer.has_bias) if hasattr(layer, "has_bias") else layer.bias is not None


def _padding(layer: Any, size: Sequence[int]) -> Settings:
    mode = {"pad_mode": _pad_mode(layer)} if hasattr(layer, "pad_mode") else {}  # in MindSpore
    return {"pads": pads_of(layer, size), **mode}


def _pad_mode(layer: Any) -> str:
    if hasattr(layer, "pad_mode"):
        return str(layer.pad_mode).lower()
    return layer.padding if isinstance(layer.padding, str) else "pad"  # in torch and mint


def pads_of(layer: Any, size: Sequence[int]) -> Pads | None:
    """How many zeros a convolution or pool adds before and after this input; None if it is not known."""
    count, mode = len(size), _pad_mode(layer)
    if mode == "valid":
        return (0,) * 2 * count
    if mode == "pad":
        return _given_padding(layer, count)
    pads: list[int] = []
    kernels, strides, dilations = (_spread(getattr(layer, n, 1), count) for n in ("kernel_size", "stride", "dilation"))
    for extent, kernel, stride, dilation in zip(size, kernels, strides, dilations, strict=True):
        # TensorFlow's SAME: ⌈extent / stride⌉ outputs, the odd zero after; torch has it for stride 1 only.
        total = max((math.ceil(extent / stride) - 1) * stride + dilation * (kernel - 1) + 1 - extent, 0)
        pads += [total // 2, total - total // 2]
    return tuple(pads)


def _given_padding(layer: Any, count: int) -> Pads | None:
    """The `padding` argument, spread: one number, one for each direction (torch, max pools), or one for each side."""
    padding = getattr(layer, "padding", None)
    if padding is None:  # nn.AvgPool2d and nn.MaxPool3d have it in their operation only
        operation = _operation(layer)
        padding = operation.get("pad", operation.get("pad_list", operation.get("pads")))
    if padding is None:
        return None
    if isinstance(padding, int):
        return (padding,) * 2 * count
    if kind_of(layer) == "maxpool" or len(padding) < 2 * count:
        return tuple(one for one in padding[-count:] for _ in ("before", "after"))
    return tuple(padding[-2 * count :])


def _operation(layer: Any) -> Settings:
    """The attributes of a MindSpore cell's main operation, not of those that reshape for it."""
    attributes: Settings = {}
    for name, operation in getattr(layer, "_primitives", {}).items():
        if name.startswith(("avg_pool", "max_pool", "adaptive_", "softmax", "log_softmax", "elu", "celu")):
            attributes |= getattr(operation, "init_attrs", {})
    return attributes


def _transposed(layer: Any, image: np.ndarray | None) -> Settings:
    """`pads` are cut off the full output of size (n − 1) · stride + kernel, as in torch."""
    count = _directions(layer, image)
    settings, mode = {**_conv(layer, image), "transposed": True}, _pad_mode(layer)
    more = _spread(getattr(layer, "output_padding", 0), count)
    if mode == "pad":
        pads = list(_given_padding(layer, count) or (0,) * 2 * count)
        if type(layer).__name__ == "Conv2dTranspose":
            settings |= {"zeros_after": more} if any(more) else {}  # appended to the output
        pads[1::2] = [cut - extra for cut, extra in zip(pads[1::2], more, strict=True)]
    else:
        pads = []
        for kernel, stride, dilation in zip(*(settings[n] for n in ("kernel_size", "stride", "dilation")), strict=True):
            total = dilation * (kernel - 1) + 1 - stride
            pads += [total // 2, total - total // 2] if mode == "same" else [0, min(total, 0)]
    return settings | {"pads": tuple(pads)}


def _pool(layer: Any, image: np.ndarray | None) -> Settings:
    count = _directions(layer, image)
    size = image.shape[-count:] if image is not None else None
    operation = _operation(layer)
    if hasattr(layer, "output_size") or "Adaptive" in type(layer).__name__:
        output: Any = getattr(layer, "output_size", operation.get("output_size"))
        output = output.numpy().tolist() if hasattr(output, "numpy") else output
        return _adaptive_pool(output if isinstance(output, Sequence) else (output,) * count, size) if size else {}
    kernel = _spread(layer.kernel_size, count)
    stride = kernel if layer.stride is None else _spread(layer.stride, count)
    settings: Settings = {"kernel_size": kernel, "stride": stride}
    pads: Pads = (0,) * 2 * count
    if kind_of(layer) == "maxpool":
        settings["dilation"] = _spread(getattr(layer, "dilation", operation.get("dilation", 1)), count)
    if size:
        settings |= _padding(layer, size)
        pads = settings["pads"] or pads
        rests = ((n + a + b - k) % s for n, a, b, k, s in zip(size, pads[::2], pads[1::2], kernel, stride, strict=True))
        # `ceil_mode` counts only if it changes the size of the output.
        settings["ceil_mode"] = bool(getattr(layer, "ceil_mode", operation.get("ceil_mode", False))) and any(rests)
        if tuple(kernel) == tuple(size) and not any(pads):
            del settings["stride"]  # there is one window
    if kind_of(layer) == "avgpool":
        settings["divisor_override"] = getattr(layer, "divisor_override", operation.get("divisor_override")) or None
        if any(pads):  # `same` never counts its zeros
            counts = getattr(layer, "count_include_pad", operation.get("count_include_pad", True))
            settings["count_include_pad"] = bool(counts) and _pad_mode(layer) != "same"
    return settings


def _adaptive_pool(output: Sequence[int | None], size: Sequence[int]) -> Settings:
    """The settings of the plain pool that computes the same on an input of this size; if there is none, `output_size`.

    `output` has the size in each direction, None for the input's.
    """
    wanted = [b if a is None else int(a) for a, b in zip(output, size, strict=True)]
    if any(b % a for a, b in zip(wanted, size, strict=True)):
        return {"output_size": tuple(wanted)}
    kernel = tuple(b // a for a, b in zip(wanted, size, strict=True))
    settings = {"kernel_size": kernel, "pads": (0,) * 2 * len(kernel), "ceil_mode": False}
    return settings if kernel == tuple(size) else {**settings, "stride": kernel}


def _norm(layer: Any, image: np.ndarray | None) -> Settings:
    layer = getattr(layer, "bn2d", layer)  # MindSpore's BatchNorm3d is a cell around a BatchNorm2d
    name = " ".join(class_.__name__ for class_ in type(layer).__mro__)
    settings: Settings = {"eps": float(layer.epsilon if hasattr(layer, "epsilon") else layer.eps)}
    if "LayerNorm" in name:
        # A user's class that is derived from MindSpore's may transpose its input first, as in ConvNeXt.
        given = type(layer).__module__.partition(".")[0] == "mindspore"
        axis = getattr(layer, "begin_norm_axis", None) if given else None
        shape = layer.normalized_shape if axis is None or image is None else image.shape[axis:]
        return {**settings, "over": "layer", "normalized_shape": tuple(shape)}
    if "GroupNorm" in name:
        return {**settings, "over": "group", "num_groups": layer.num_groups}
    if "InstanceNorm" in name:
        channels = 0 if image is None else image.shape[1]
        return {**settings, "over": "group", "num_groups": layer.num_features or channels}
    tracks = getattr(layer, "track_running_stats", True)
    always = {None: "in training" if tracks else "always", True: "always", False: "never"}
    settings |= {"over": "batch", "batch_statistics": always[getattr(layer, "use_batch_statistics", None)]}
    # MindSpore's cell also stores the weight of the new statistics; nn.BatchNorm2d's argument was 1 − that.
    return settings | ({} if layer.momentum is None else {"momentum": float(layer.momentum)})


def _attention(layer: Any, image: np.ndarray | None) -> Settings:
    return {
        "num_heads": layer.num_heads,
        "bias": layer.in_proj_bias is not None,
        "add_bias_kv": layer.bias_k is not None,
        "add_zero_attn": bool(layer.add_zero_attn),
        "batch_first": bool(layer.batch_first),
    }


def _recurrent(layer: Any, image: np.ndarray | None) -> Settings:
    settings = {name: getattr(layer, name) for name in ("hidden_size", "num_layers", "bidirectional", "batch_first")}
    if kind_of(layer) == "rnn":
        relu = "Relu" in type(getattr(layer, "rnn", None)).__name__
        settings["nonlinearity"] = getattr(layer, "nonlinearity", "relu" if relu else "tanh")
    bias = layer.has_bias if hasattr(layer, "has_bias") else layer.bias
    return {**settings, "bias": bias, "proj_size": getattr(layer, "proj_size", 0)}


def _softmax(layer: Any, image: np.ndarray | None) -> Settings:
    axis = -3 if "2d" in type(layer).__name__ else getattr(layer, "dim", _operation(layer).get("axis"))
    return {} if axis is None or image is None else {"axis": int(np.ravel(axis)[0]) % image.ndim}


def _upsample(layer: Any, image: np.ndarray | None) -> Settings:
    fixed = {"UpsamplingNearest2d": ("nearest", False), "UpsamplingBilinear2d": ("bilinear", True)}
    mode, corners = fixed.get(type(layer).__name__) or (layer.mode, bool(layer.align_corners))
    settings: Settings = {"mode": mode, "align_corners": corners}
    if image is None:
        return settings
    count = image.ndim - 2
    if layer.size is not None:
        return {**settings, "size": _spread(layer.size, count)}
    scale = layer.scale_factor if isinstance(layer.scale_factor, Sequence) else (layer.scale_factor,) * count
    return {**settings, "size": tuple(math.floor(n * s) for n, s in zip(image.shape[2:], scale, strict=True))}


def _spread(value: Any, count: int) -> tuple[int, ...]:
    """A number for each of `count` directions, of one for all or of more: MindSpore has (1, k) for a Conv1d's k."""
    values = tuple(int(one) for one in value) if isinstance(value, tuple | list) else (int(value),) * count
    return values[len(values) - count :] if len(values) > count else values


def _directions(layer: Any, image: np.ndarray | None) -> int:
    """In how many directions a convolution or pool slides, by its class's name, else by its input's shape."""
    if named := re.search("([123])d", " ".join(class_.__name__ for class_ in type(layer).__mro__)):
        return int(named[1])
    return max(1, image.ndim - 2) if image is not None else 2


def _numbers(**names: Sequence[str]) -> Callable[[Any, Any], Settings]:
    """Numbers under one of several attributes of a layer, or in its operation; a missing one is left out."""

    def numbers_of(layer: Any, image: np.ndarray | None) -> Settings:
        settings: Settings = {}
        for word, attributes in names.items():
            attribute = next((one for one in attributes if hasattr(layer, one)), None)
            value = getattr(layer, attribute) if attribute else _operation(layer).get(word)
            settings |= {} if value is None else {word: float(value)}
        return settings

    return numbers_of


_TABLE: dict[str, Callable[[Any, Any], Settings]] = {
    "conv": _conv,
    "transposed conv": _transposed,
    **dict.fromkeys(("maxpool", "avgpool"), _pool),
    "norm": _norm,
    "dense": lambda layer, _: {"bias": _has_bias(layer), "activation": str(getattr(layer, "activation", None) or "")},
    "embedding": lambda layer, _: {
        **{name: getattr(layer, name, None) for name in ("padding_idx", "max_norm")},
        "scale_grad_by_freq": bool(getattr(layer, "scale_grad_by_freq", False)),
    },
    "attention": _attention,
    **dict.fromkeys(("lstm", "gru", "rnn"), _recurrent),
    "gelu": lambda layer, _: {"approximate": getattr(layer, "approximate", "sigmoid")},  # FastGelu: x σ(1.702 x)
    "leakyrelu": _numbers(slope=("negative_slope", "alpha")),
    **dict.fromkeys(("elu", "celu"), lambda layer, image: {"alpha": 1.0, **_numbers(alpha=("alpha",))(layer, image)}),
    "hardtanh": _numbers(min=("min_val",), max=("max_val",)),
    "softplus": _numbers(beta=("beta",), threshold=("threshold",)),
    **dict.fromkeys(("softmax", "logsoftmax"), _softmax),
    "upsample": _upsample,
}

# Attributes with the share that a layer drops: attention's and LSTM's `dropout`, timm's DropPath's drop_prob; others
# pass it to a function: torchvision's DenseNet drop_rate, its Swin attention_dropout.
_DROPS = (
    *("dropout", "drop_prob", "drop_path_prob", "dropout_p", "dropout_prob", "attn_drop_prob", "p_dropout"),
    *("attention_dropout", "drop_rate", "layerdrop"),
)


def _dropped(layer: Any) -> float:
    """The share that a dropout layer drops: MindSpore's `nn.Dropout(0.9)` keeps 0.9, all others drop it."""
    for name in ("p", "prob"):
        if getattr(layer, name, None) is not None:
            return float(getattr(layer, name))
    return round(1.0 - float(layer.keep_prob), 6)


@contextlib.contextmanager
def without_dropout(layers: Iterable[tuple[str, Any]]) -> Iterator[list[tuple[str, str, float]]]:
    """Inside, dropout is 0, for frameworks do not share random masks: of dropout layers, attention, LSTMs and drop-path
    with its usual attributes. Compile the net's functions inside.

    Yields the path of each layer that dropped, the attribute that was set to 0, and the share that it had.
    """
    drops = []
    with contextlib.ExitStack() as restored:

        def change(layer: Any, attribute: str, value: Any) -> None:
            restored.callback(setattr, layer, attribute, getattr(layer, attribute))
            setattr(layer, attribute, value)

        for name, layer in layers:
            if kind_of(layer) == "dropout":
                if (share := _dropped(layer)) > 0:
                    drops.append((name, "p", share))
                    for attribute, nothing in (("p", 0.0), ("prob", 0.0), ("keep_prob", 1.0)):
                        if hasattr(layer, attribute):
                            change(layer, attribute, nothing)
                continue
            held = [(layer, one) for one in (*_DROPS, *["p"] * (type(layer).__name__ == "StochasticDepth"))]
            for holder, attribute in [*held, (getattr(layer, "config", None), "layerdrop")]:
                value = getattr(holder, attribute, None)
                if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
                    drops.append((name, attribute, float(value)))
                    change(holder, attribute, type(value)(0))
            if isinstance(kept := getattr(layer, "keep_prob", None), float) and kept < 1:  # MindCV's DropPath
                drops.append((name, "p", round(1.0 - kept, 6)))
                change(layer, "keep_prob", 1.0)
        yield drops
