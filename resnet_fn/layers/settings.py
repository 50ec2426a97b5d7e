"""How a layer is set, in words that MindSpore and PyTorch share: one table for the classes of both.

`mindspore.nn`, `mindspore.mint.nn` and `torch.nn` keep the same things under other names: each function below describes
one kind of layer of all three.

The words: `kernel_size`, `stride`, `dilation`, `groups`, `bias`, `pads` (zeros before and after, for each direction, as
they fall on this input; of a transposed convolution, what is cut off), `pad_mode`, `eps`, `momentum` (what the new
statistics weigh, as torch means it), `activation`, and those that need no explanation.
"""

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from resnet_fn.layers.layer import kind_of

Pads = tuple[int, ...]  # zeros added before and after, direction by direction: top, bottom, left, right
Settings = dict[str, Any]


def settings_of(layer: Any, image: np.ndarray | None) -> Settings:
    """How a layer is set; empty for a kind that has no settings, or a class of the user's that keeps them otherwise.

    Args:
        layer: of either framework.
        image: its first input; `same` pads as it falls on this size.
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
    found: Settings = {
        **{name: _spread(getattr(layer, name), count) for name in ("kernel_size", "stride", "dilation")},
        "groups": layer.groups if hasattr(layer, "groups") else layer.group,
        "bias": _has_bias(layer),
        "padding_mode": getattr(layer, "padding_mode", "zeros"),
    }
    return found if image is None else found | _padding(layer, image.shape[-count:])


def _has_bias(layer: Any) -> bool:
    return bool(layer.has_bias) if hasattr(layer, "has_bias") else layer.bias is not None


def _padding(layer: Any, size: Sequence[int]) -> Settings:
    mode = {"pad_mode": _pad_mode(layer)} if hasattr(layer, "pad_mode") else {}  # MindSpore's word
    return {"pads": pads_of(layer, size), **mode}


def _pad_mode(layer: Any) -> str:
    if hasattr(layer, "pad_mode"):
        return str(layer.pad_mode).lower()
    return layer.padding if isinstance(layer.padding, str) else "pad"  # as torch's and mint's


def pads_of(layer: Any, size: Sequence[int]) -> Pads | None:
    """How many zeros a convolution or pool adds before and after on this input; None where it does not say."""
    count, mode = len(size), _pad_mode(layer)
    if mode == "valid":
        return (0,) * 2 * count
    if mode == "pad":
        return _given_padding(layer, count)
    pads: list[int] = []
    kernels, strides, dilations = (_spread(getattr(layer, n, 1), count) for n in ("kernel_size", "stride", "dilation"))
    for extent, kernel, stride, dilation in zip(size, kernels, strides, dilations, strict=True):
        # What TensorFlow calls SAME: ⌈extent / stride⌉ outputs, the odd zero at the end; torch's has stride 1 only.
        total = max((math.ceil(extent / stride) - 1) * stride + dilation * (kernel - 1) + 1 - extent, 0)
        pads += [total // 2, total - total // 2]
    return tuple(pads)


def _given_padding(layer: Any, count: int) -> Pads | None:
    """The `padding` argument, spread: one number, one for each direction (torch, max pools), or one for each side."""
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


def _operation(layer: Any) -> Settings:
    """What a MindSpore cell's operation was made with: the one that does the work, not those that reshape for it."""
    kept: Settings = {}
    for name, operation in getattr(layer, "_primitives", {}).items():
        if name.startswith(("avg_pool", "max_pool", "adaptive_", "softmax", "log_softmax", "elu", "celu")):
            kept |= getattr(operation, "init_attrs", {})
    return kept


def _transposed(layer: Any, image: np.ndarray | None) -> Settings:
    """`pads` are what is cut off the full product of size (n − 1) · stride + kernel, as in torch."""
    count = _directions(layer, image)
    found, mode = {**_conv(layer, image), "transposed": True}, _pad_mode(layer)
    more = _spread(getattr(layer, "output_padding", 0), count)
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


def _pool(layer: Any, image: np.ndarray | None) -> Settings:
    count = _directions(layer, image)
    size = image.shape[-count:] if image is not None else None
    operation = _operation(layer)
    if hasattr(layer, "output_size") or "Adaptive" in type(layer).__name__:
        output: Any = getattr(layer, "output_size", operation.get("output_size"))
        output = output.asnumpy().tolist() if hasattr(output, "asnumpy") else output
        return _adaptive_pool(output if isinstance(output, Sequence) else (output,) * count, size) if size else {}
    kernel = _spread(layer.kernel_size, count)
    stride = kernel if layer.stride is None else _spread(layer.stride, count)
    found: Settings = {"kernel_size": kernel, "stride": stride}
    if kind_of(layer) == "maxpool":
        found["dilation"] = _spread(getattr(layer, "dilation", operation.get("dilation", 1)), count)
    if size:
        found |= _padding(layer, size)
        ceil = bool(getattr(layer, "ceil_mode", operation.get("ceil_mode", False)))
        found["ceil_mode"] = ceil and _ceil_matters(size, kernel, stride, found["pads"] or (0,) * 2 * count)
        if tuple(kernel) == tuple(size) and not any(found["pads"] or ()):
            del found["stride"]  # there is one place for it
    if kind_of(layer) == "avgpool":
        found["divisor_override"] = getattr(layer, "divisor_override", operation.get("divisor_override")) or None
        if any(found.get("pads") or ()):  # `same` never counts its zeros
            counts = getattr(layer, "count_include_pad", operation.get("count_include_pad", True))
            found["count_include_pad"] = bool(counts) and _pad_mode(layer) != "same"
    return found


def _adaptive_pool(output: Sequence[int | None], size: Sequence[int]) -> Settings:
    """The settings of the plain pool that an adaptive pool is on this input; its output's size if it is none.

    `output` is the wanted size in each direction, None for that of the input, `size`.
    """
    wanted = [b if a is None else int(a) for a, b in zip(output, size, strict=True)]
    if any(b % a for a, b in zip(wanted, size, strict=True)):
        return {"output_size": tuple(wanted)}
    kernel = tuple(b // a for a, b in zip(wanted, size, strict=True))
    found = {"kernel_size": kernel, "pads": (0,) * 2 * len(kernel), "ceil_mode": False}
    return found if kernel == tuple(size) else {**found, "stride": kernel}


def _ceil_matters(size: Sequence[int], kernel: Sequence[int], stride: Sequence[int], pads: Pads) -> bool:
    """Whether a pool with `ceil_mode` gives another size on this input than without."""
    totals = [a + b for a, b in zip(pads[::2], pads[1::2], strict=True)]
    return any((n + total - k) % s for n, total, k, s in zip(size, totals, kernel, stride, strict=True))


def _norm(layer: Any, image: np.ndarray | None) -> Settings:
    layer = getattr(layer, "bn2d", layer)  # MindSpore's BatchNorm3d is one around a BatchNorm2d
    name = " ".join(class_.__name__ for class_ in type(layer).__mro__)
    found: Settings = {"eps": float(layer.epsilon if hasattr(layer, "epsilon") else layer.eps)}
    if "LayerNorm" in name:
        # A class of the user's that is derived from MindSpore's turns its input first, as ConvNeXts do.
        given = type(layer).__module__.partition(".")[0] == "mindspore"
        axis = getattr(layer, "begin_norm_axis", None) if given else None
        shape = layer.normalized_shape if axis is None or image is None else image.shape[axis:]
        return {**found, "over": "layer", "normalized_shape": tuple(shape)}
    if "GroupNorm" in name:
        return {**found, "over": "group", "num_groups": layer.num_groups}
    if "InstanceNorm" in name:
        return {**found, "over": "group", "num_groups": layer.num_features or (0 if image is None else image.shape[1])}
    tracks = getattr(layer, "track_running_stats", True)
    always = {None: "in training" if tracks else "always", True: "always", False: "never"}
    found |= {"over": "batch", "batch_statistics": always[getattr(layer, "use_batch_statistics", None)]}
    # MindSpore's cell, too, keeps what the new statistics weigh; nn.BatchNorm2d's argument was 1 − that.
    return found | ({} if layer.momentum is None else {"momentum": float(layer.momentum)})


def _attention(layer: Any, image: np.ndarray | None) -> Settings:
    return {
        "num_heads": layer.num_heads,
        "bias": layer.in_proj_bias is not None,
        "add_bias_kv": layer.bias_k is not None,
        "add_zero_attn": bool(layer.add_zero_attn),
        "batch_first": bool(layer.batch_first),
    }


def _recurrent(layer: Any, image: np.ndarray | None) -> Settings:
    found = {name: getattr(layer, name) for name in ("hidden_size", "num_layers", "bidirectional", "batch_first")}
    if kind_of(layer) == "rnn":
        relu = "Relu" in type(getattr(layer, "rnn", None)).__name__
        found["nonlinearity"] = getattr(layer, "nonlinearity", "relu" if relu else "tanh")
    bias = layer.has_bias if hasattr(layer, "has_bias") else layer.bias
    return {**found, "bias": bias, "proj_size": getattr(layer, "proj_size", 0)}


def _softmax(layer: Any, image: np.ndarray | None) -> Settings:
    axis = -3 if "2d" in type(layer).__name__ else getattr(layer, "dim", _operation(layer).get("axis"))
    return {} if axis is None or image is None else {"axis": int(np.ravel(axis)[0]) % image.ndim}


def _upsample(layer: Any, image: np.ndarray | None) -> Settings:
    fixed = {"UpsamplingNearest2d": ("nearest", False), "UpsamplingBilinear2d": ("bilinear", True)}
    mode, corners = fixed.get(type(layer).__name__) or (layer.mode, bool(layer.align_corners))
    found: Settings = {"mode": mode, "align_corners": corners}
    if image is None:
        return found
    count = image.ndim - 2
    if layer.size is not None:
        return {**found, "size": _spread(layer.size, count)}
    scale = layer.scale_factor if isinstance(layer.scale_factor, Sequence) else (layer.scale_factor,) * count
    return {**found, "size": tuple(math.floor(n * s) for n, s in zip(image.shape[2:], scale, strict=True))}


def _spread(value: Any, count: int) -> tuple[int, ...]:
    """One number for all directions, or a number for each: MindSpore's kernels of one direction have a 1 before it."""
    values = tuple(int(one) for one in value) if isinstance(value, tuple | list) else (int(value),) * count
    return values[len(values) - count :] if len(values) > count else values


def _directions(layer: Any, image: np.ndarray | None) -> int:
    """How many directions a convolution or pool slides in: as its class's name says, else as its input has."""
    found = re.search("([123])d", " ".join(class_.__name__ for class_ in type(layer).__mro__))
    if found:
        return int(found[1])
    return max(1, image.ndim - 2) if image is not None else 2


def _numbers(**names: Sequence[str]) -> Callable[[Any, Any], Settings]:
    """Numbers that a layer keeps under one of several names, or in its operation; left out where it has none."""

    def describe(layer: Any, image: np.ndarray | None) -> Settings:
        found: Settings = {}
        for word, places in names.items():
            place = next((place for place in places if hasattr(layer, place)), None)
            value = getattr(layer, place) if place else _operation(layer).get(word)
            found |= {} if value is None else {word: float(value)}
        return found

    return describe


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

# Where layers keep how much they drop: attention's and LSTM's `dropout`, timm's DropPath's drop_prob; others hand a
# number to a function: torchvision's DenseNet drop_rate, its Swin attention_dropout.
_DROPS = (
    *("dropout", "drop_prob", "drop_path_prob", "dropout_p", "dropout_prob", "attn_drop_prob", "p_dropout"),
    *("attention_dropout", "drop_rate"),
)


def _dropped(layer: Any) -> float:
    """The share that a dropout layer drops: `nn.Dropout(0.9)` of MindSpore keeps 0.9, any other drops it."""
    for name in ("p", "prob"):
        if getattr(layer, name, None) is not None:
            return float(getattr(layer, name))
    return round(1.0 - float(layer.keep_prob), 6)


@contextlib.contextmanager
def without_dropout(layers: Iterable[tuple[str, Any]]) -> Iterator[list[tuple[str, str, float]]]:
    """Inside, nothing is dropped, for no two frameworks share their random masks: dropout layers, attention's, LSTM's,
    and drop-path by its usual attributes.

    Compile functions of the net inside: what is compiled keeps what was set then.

    Yields:
        What is set to 0: the layer's path, the attribute that said it, and the share that it dropped.
    """
    changed: list[tuple[Any, str, Any]] = []
    found = []

    def change(layer: Any, attribute: str, value: Any) -> None:
        changed.append((layer, attribute, getattr(layer, attribute)))
        setattr(layer, attribute, value)

    try:
        for name, layer in layers:
            if kind_of(layer) == "dropout":
                if (share := _dropped(layer)) > 0:
                    found.append((name, "p", share))
                    for attribute, nothing in (("p", 0.0), ("prob", 0.0), ("keep_prob", 1.0)):
                        if hasattr(layer, attribute):
                            change(layer, attribute, nothing)
                continue
            for attribute in (*_DROPS, *["p"] * (type(layer).__name__ == "StochasticDepth")):
                value = getattr(layer, attribute, None)
                if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
                    found.append((name, attribute, float(value)))
                    change(layer, attribute, type(value)(0))
            if isinstance(kept := getattr(layer, "keep_prob", None), float) and kept < 1:  # MindCV's DropPath
                found.append((name, "p", round(1.0 - kept, 6)))
                change(layer, "keep_prob", 1.0)
        yield found
    finally:
        for layer, attribute, value in reversed(changed):
            setattr(layer, attribute, value)
