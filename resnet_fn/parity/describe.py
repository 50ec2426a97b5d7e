"""How a layer is set, as data: what the descriptions of both frameworks' layers share (`resnet_fn.parity.settings`)."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from resnet_fn.parity.traces.layer import kind_of

Pads = tuple[int, ...]  # zeros added before and after, direction by direction: top, bottom, left, right

# Where modules and cells keep how much they drop: attention's and LSTM's `dropout`, timm's DropPath's drop_prob; others
# hand a number to a function: torchvision's DenseNet drop_rate, its Swin attention_dropout.
DROPS = (
    *("dropout", "drop_prob", "drop_path_prob", "dropout_p", "dropout_prob", "attn_drop_prob", "p_dropout"),
    *("attention_dropout", "drop_rate"),
)


def describe_layer(
    describe: Mapping[str, Callable[..., dict[str, Any]]], framework: str, layer: Any, image: np.ndarray | None
) -> dict[str, Any]:
    """How a layer is set; empty for a kind that has no settings, or a class of the user's that keeps them otherwise.

    Args:
        describe: by kind, a function of the layer and its input.
        framework: the package whose own classes keep what is looked for.
        layer: the layer.
        image: its first input.
    """
    function = describe.get(kind_of(layer))
    try:
        return function(layer, image) if function else {}
    except AttributeError:
        if type(layer).__module__.partition(".")[0] == framework:
            raise
        return {}


def drops(layer: Any, attributes: Iterable[str]) -> Iterator[tuple[str, float]]:
    """Those of a layer's attributes that are numbers above 0, with their values."""
    for attribute in attributes:
        value = getattr(layer, attribute, None)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            yield attribute, value


def attention(layer: Any, image: np.ndarray | None) -> dict[str, Any]:
    """Of torch's and MindSpore's own multi-head attention, which keep the same things under the same names."""
    return {
        "num_heads": layer.num_heads,
        "bias": layer.in_proj_bias is not None,
        "add_bias_kv": layer.bias_k is not None,
        "add_zero_attn": bool(layer.add_zero_attn),
        "batch_first": bool(layer.batch_first),
        "p": float(layer.dropout),
    }


def resized(layer: Any, image: np.ndarray) -> tuple[int, ...]:
    """The size that an upsampling layer gives to an input: its own, or the input's times its factor."""
    count = image.ndim - 2
    if layer.size is not None:
        return spread(layer.size, count)
    scale = layer.scale_factor if isinstance(layer.scale_factor, Sequence) else (layer.scale_factor,) * count
    return tuple(math.floor(n * s) for n, s in zip(image.shape[2:], scale, strict=True))


def spread(value: Any, count: int) -> tuple[int, ...]:
    """One number for all directions, or a number for each: MindSpore's kernels of one direction have a 1 before it."""
    values = tuple(int(one) for one in value) if isinstance(value, tuple | list) else (int(value),) * count
    return values[len(values) - count :] if len(values) > count else values


def directions(layer: Any, image: np.ndarray | None) -> int:
    """How many directions a convolution or pool slides in: as its class's name says, else as its input has."""
    found = re.search("([123])d", " ".join(class_.__name__ for class_ in type(layer).__mro__))
    if found:
        return int(found[1])
    return max(1, image.ndim - 2) if image is not None else 2


def adaptive_pool(output: Sequence[int | None], size: Sequence[int]) -> dict[str, Any]:
    """An adaptive pool's settings: those of the plain pool that it is on this input; its output's size if it is none.

    Args:
        output: wanted size in each direction, None for the input's.
        size: of the input.
    """
    wanted = [b if a is None else int(a) for a, b in zip(output, size, strict=True)]
    if any(b % a for a, b in zip(wanted, size, strict=True)):
        return {"output_size": tuple(wanted)}
    kernel = tuple(b // a for a, b in zip(wanted, size, strict=True))
    found = {"kernel_size": kernel, "pads": (0,) * 2 * len(kernel), "ceil_mode": False}
    return found if kernel == tuple(size) else {**found, "stride": kernel}


def slides(kernel: Sequence[int], size: Sequence[int], pads: Pads | None) -> bool:
    """Whether a pool has more than one place on this input, so that its stride matters."""
    return tuple(kernel) != tuple(size) or any(pads or ())


def ceil_matters(size: Sequence[int], kernel: Sequence[int], stride: Sequence[int], pads: Pads) -> bool:
    """Whether a pool with `ceil_mode` gives another size on this input than without."""
    totals = [a + b for a, b in zip(pads[::2], pads[1::2], strict=True)]
    return any((n + total - k) % s for n, total, k, s in zip(size, totals, kernel, stride, strict=True))
