"""Change a torch call that a layer makes: a norm, a convolution, a pool, a product, and so on.

These are families of `call_changes`, whose table has the kinds of calls of each.
"""
# ruff: noqa: B023 (each function is called before its loop continues)

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F

from resnet_fn.parity.explain.calls import Call, Changes
from resnet_fn.parity.explain.sequences import as_tuple
from resnet_fn.parity.trace.layer import same_pads

# what may be added to the variance, or to another divisor
EPS = (1e-12, 1e-8, 1e-7, 1e-6, 1e-5, 1e-3, 1e-2)

ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "elu": F.elu,
    "relu6": F.relu6,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "tanh GELU": lambda x: F.gelu(x, approximate="tanh"),
    "quick GELU": lambda x: x * torch.sigmoid(1.702 * x),
    "leaky ReLU 0.01": lambda x: F.leaky_relu(x, 0.01),
    "leaky ReLU 0.1": lambda x: F.leaky_relu(x, 0.1),
    "leaky ReLU 0.2": lambda x: F.leaky_relu(x, 0.2),
}


def _activated(call: Call) -> Changes:
    """Yield a usual activation of the input: "relu before it"."""
    for name in ("relu", "silu", "gelu"):
        title = f"{name} before it"
        yield title, lambda: call.again(input=ACTIVATIONS[name](call.x))


# Norms.


def _eps(call: Call) -> float:
    """Return what a norm adds to the variance: if it is None, the smallest relative step."""
    return call.bound.get("eps", 1e-5) or torch.finfo(call.x.dtype).eps


def norm(call: Call) -> Changes:
    """Yield what each norm may have: "eps 1e-06 for 1e-05", no bias, no weight."""
    eps = _eps(call)
    for other in EPS:
        title = f"eps {other:g} for {eps:g}"
        yield title, lambda: call.again(eps=other)
    yield "no bias added", lambda: call.again(bias=None)
    yield "no weight multiplied", lambda: call.again(weight=None)
    yield from _activated(call)


def batch_norm(call: Call) -> Changes:
    """Yield, for an evaluation, "the batch's statistics"."""
    if not call.bound.get("training"):
        yield (
            "the batch's statistics",
            lambda: call.again(running_mean=None, running_var=None, training=True),
        )


def group_norm(call: Call) -> Changes:
    """Yield other numbers of groups: "1 groups for 32"."""
    channels = call.x.shape[1]
    own = call.bound["num_groups"]
    for groups in range(1, channels + 1):
        if channels % groups == 0:
            title = f"{groups} groups for {own}"
            yield title, lambda: call.again(num_groups=groups)


def each_frame(call: Call) -> Changes:
    """Yield, of clips, the norm of "each frame (axis 2) alone"."""
    if call.x.ndim != 5:
        return
    frames = call.x.transpose(1, 2)
    each = frames.flatten(0, 1)
    yield (
        "each frame (axis 2) alone",
        lambda: call.again(input=each).reshape(frames.shape).transpose(1, 2),
    )


def layer_norm(call: Call) -> Changes:
    """Yield other statistics and axes: "normalized over axis 1 for 2"."""
    bound = call.bound
    x = call.x
    weight = bound.get("weight")
    bias = bound.get("bias")
    eps = _eps(call)
    dims = tuple(range(-len(bound["normalized_shape"]), 0))
    last = x.ndim - 1
    centred = x - x.mean(dims, keepdim=True)

    def affine(y: torch.Tensor) -> torch.Tensor:
        weighted = y if weight is None else y * weight
        return weighted if bias is None else weighted + bias

    n_1 = x.var(dims, keepdim=True)
    yield (
        "no mean subtracted (RMSNorm)",
        lambda: affine(x * (x.square().mean(dims, keepdim=True) + eps).rsqrt()),
    )
    yield (
        "variance divided by n − 1 instead of n",
        lambda: affine(centred * (n_1 + eps).rsqrt()),
    )
    for axis in range(1, last if len(dims) == 1 else 0):
        turned = x.transpose(axis, -1)
        normalized = F.layer_norm(turned, turned.shape[-1:], eps=eps)
        plain = normalized.transpose(axis, -1)
        title = f"normalized over axis {axis} for {last}"
        yield title, lambda: affine(plain)
        title = f"normalized and weighted over axis {axis} for {last}"
        yield title, lambda: call.again(input=turned).transpose(axis, -1)


# Windows: convolutions, padding, pools.


def _same(
    x: Any, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> list[int]:
    """Return the padding of MindSpore's pad_mode "same" for `x`, in the order of `F.pad`."""
    pads: list[int] = []
    for of_axis in zip(x.shape[2:], kernel, stride, dilation, strict=True):
        pads = [*same_pads(*of_axis), *pads]
    return pads


def _each_side(padding: Sequence[int]) -> list[int]:
    """Return a padding before and after each axis, in the order of `F.pad`."""
    pads = []
    for count in reversed(padding):
        pads += [count, count]
    return pads


def conv(call: Call) -> Changes:
    """Yield other paddings: "no padding instead of 1", no bias, a transposed kernel."""
    bound = call.bound
    x = call.x
    axes = x.ndim - 2
    weight = bound["weight"]
    own = bound.get("padding", 0)
    yield "no bias added", lambda: call.again(bias=None)
    yield "the kernel transposed", lambda: call.again(weight=weight.transpose(2, 3))
    if call.kind == "conv_transpose":
        yield "no output padding", lambda: call.again(output_padding=0)
        return
    stride = as_tuple(bound.get("stride", 1), axes)
    dilation = as_tuple(bound.get("dilation", 1), axes)
    same = _same(x, weight.shape[2:], stride, dilation)
    padding = 0 if isinstance(own, str) else own
    each = _each_side(as_tuple(padding, axes))
    for padded, pads in {
        "padding of pad_mode same": same,
        "no padding": [0] * 2 * axes,
        "one less of padding": [count - 1 for count in each],
    }.items():
        title = f"{padded} instead of {own}"
        yield title, lambda: call.again(input=F.pad(x, pads), padding=0)
    for mode in ("reflect", "replicate"):
        title = f"padding by {mode} instead of zeros"
        yield title, lambda: call.again(input=F.pad(x, each, mode=mode), padding=0)
    yield from _activated(call)


def pad(call: Call) -> Changes:
    """Yield other kinds and sides of padding: "padding by reflect for zeros"."""
    bound = call.bound
    x = call.x
    pads = list(bound["pad"])
    mode = bound.get("mode", "constant")
    value = bound.get("value") or 0.0
    kinds = {"constant": "zeros" if value == 0 else f"{value:g}"}
    own = kinds.get(mode, mode)
    for other in ("reflect", "replicate", "circular"):
        if other != mode:
            title = f"padding by {other} for {own}"
            yield title, lambda: F.pad(x, pads, mode=other)
    if own != "zeros":
        yield f"padding by zeros for {own}", lambda: F.pad(x, pads)
    sides = [pads[index ^ 1] for index in range(len(pads))]
    title = f"padding {sides} for {pads}"
    yield title, lambda: F.pad(x, sides, mode=mode, value=bound.get("value"))


class _Window(NamedTuple):
    """The window of a pool."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    ceil: bool
    same: list[int]  # the padding of MindSpore's pad_mode "same"
    average: Callable[..., torch.Tensor]  # torch's functions for as many axes
    largest: Callable[..., torch.Tensor]


def _window(call: Call) -> _Window:
    axes = call.x.ndim - 2
    kernel = as_tuple(call.bound["kernel_size"], axes)
    stride = as_tuple(call.bound.get("stride") or kernel, axes)
    return _Window(
        kernel=kernel,
        stride=stride,
        padding=as_tuple(call.bound.get("padding", 0), axes),
        ceil=bool(call.bound.get("ceil_mode")),
        same=_same(call.x, kernel, stride, [1] * axes),
        average=getattr(F, f"avg_pool{axes}d"),
        largest=getattr(F, f"max_pool{axes}d"),
    )


def pool(call: Call) -> Changes:
    """Yield what each pool may have: "ceil_mode True for False", "no padding for (1, 1)"."""
    window = _window(call)
    title = f"ceil_mode {not window.ceil} for {window.ceil}"
    yield title, lambda: call.again(ceil_mode=not window.ceil)
    title = f"no padding for {window.padding}"
    yield title, lambda: call.again(padding=0)


def max_pool(call: Call) -> Changes:
    """Yield other paddings: "padding with zeros instead of −∞"; and an average."""
    kernel, stride, padding, ceil, same, average, largest = _window(call)

    def most(pads: Sequence[int], value: float) -> torch.Tensor:
        padded = F.pad(call.x, pads, value=value)
        return largest(padded, kernel, stride)

    title = f"padding of pad_mode same instead of {padding}"
    yield title, lambda: most(same, -math.inf)
    each = _each_side(padding)
    yield "padding with zeros instead of −∞", lambda: most(each, 0.0)
    title = "an average for the maximum"
    yield title, lambda: average(call.x, kernel, stride, padding, ceil)


def avg_pool(call: Call) -> Changes:
    """Yield other ways to count padding: "count_include_pad False for True"; and a maximum."""
    kernel, stride, padding, ceil, same, average, largest = _window(call)
    x = call.x
    inside = call.bound.get("count_include_pad", True)
    ones = F.pad(torch.ones_like(x), same)
    whole = average(F.pad(x, same), kernel, stride)
    title = f"count_include_pad {not inside} for {inside}"
    yield title, lambda: call.again(count_include_pad=not inside)
    title = "a maximum for the average"
    yield title, lambda: largest(x, kernel, stride, padding, ceil_mode=ceil)
    title = f"padding of pad_mode same, not counted, instead of {padding}"
    yield title, lambda: whole / average(ones, kernel, stride)


# Other layers.


def linear(call: Call) -> Changes:
    """Yield other weights: "the weight transposed"; and no bias."""
    weight = call.bound["weight"]
    yield "the weight transposed", lambda: call.again(weight=weight.T)
    yield (
        "the weight reshaped instead of transposed",
        lambda: call.again(weight=weight.reshape(weight.shape[::-1]).T),
    )
    yield "no bias added", lambda: call.again(bias=None)
    yield from _activated(call)


def embedding(call: Call) -> Changes:
    """Yield other rows and factors: "rows of id 0 set to zeros"."""
    ids = call.x
    yield (
        "rows of id 0 set to zeros",
        lambda: call.out * (ids != 0)[..., None],
    )
    yield (
        "multiplied by √width",
        lambda: call.out * call.out.shape[-1] ** 0.5,
    )
    weight = call.bound["weight"]
    yield (
        "the next row",
        lambda: F.embedding((ids + 1) % len(weight), weight),
    )


def lstm(call: Call) -> Changes:
    """Yield "the cell state for the hidden state"."""
    out, hidden, cell = call.out
    yield "the cell state for the hidden state", lambda: (out, cell, hidden)


def interpolate(call: Call) -> Changes:
    """Yield other corners and modes: "bilinear for nearest"."""
    aligned = bool(call.bound.get("align_corners"))
    mode = call.bound.get("mode", "nearest")
    title = f"align_corners {not aligned} for {aligned}"
    yield title, lambda: call.again(align_corners=not aligned)
    for other in ("nearest", "bilinear", "bicubic", "nearest-exact", "area"):
        title = f"{other} for {mode}"
        yield title, lambda: call.again(mode=other, align_corners=None)
    x = call.x
    sizes = zip(call.out.shape[2:], x.shape[2:], strict=True)
    times = [after // before for after, before in sizes]
    yield f"tiled for {mode}", lambda: x.repeat(1, 1, *times)
