"""Change a torch call in ways that imitate common mistakes in ports.

The table `_FAMILIES`, at the end, has a family of changes for each kind of call (`Call.kind`). A
family yields pairs of a title and a function that computes the changed result, likely changes
first. A title is what the port may do, and for what: `own` is what the call does now. A family
for `torch.roll` would be:

    def _roll(c: Call) -> Changes:
        own = c.bound["shifts"]
        title = f"rolled by {-own} for {own}"
        yield title, lambda: c.again(shifts=-own)

Its row of `_FAMILIES` is `"roll": _roll`. `torch.roll` has no Python signature, so the names of its
arguments need a row in `_ARGUMENTS` of calls.py, too: `"roll": "input shifts dims"`.

A kind may be in several rows, whose changes follow each other. A family's own code runs as far as
the next `yield`; the function that it yields is called before that goes on, and may fail alone. If
the family's code raises an error, `search` leaves out all further changes of this call, without a
word: so what does not fit each call comes last (as in `_layer_norm`).
"""
# ruff: noqa: B023 (each function is called before its loop continues)

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F

from resnet_fn.parity.explain.axis_changes import axes_changes, parts_changes
from resnet_fn.parity.explain.calls import Call, Changes
from resnet_fn.parity.explain.loss_changes import loss_changes
from resnet_fn.parity.explain.sequences import as_tuple, exchanged, is_number, keeps_shape, pairs
from resnet_fn.parity.record.torch_decisions import is_float
from resnet_fn.parity.trace.layer import same_pads

Function = Callable[..., Any]

# part of the title of a change that replaces an argument by another array
AS_ARGUMENT = " as argument"

_EPS = (1e-12, 1e-8, 1e-7, 1e-6, 1e-5, 1e-3, 1e-2)

_ACTIVATIONS: dict[str, Function] = {
    **{
        name: getattr(F, name)
        for name in ("relu", "gelu", "silu", "elu", "relu6", "hardswish", "hardsigmoid")
    },
    **{name: getattr(torch, name) for name in ("tanh", "sigmoid")},
    "tanh GELU": lambda x: F.gelu(x, approximate="tanh"),
    "quick GELU": lambda x: x * torch.sigmoid(1.702 * x),
    **{
        f"leaky ReLU {slope}": functools.partial(F.leaky_relu, negative_slope=slope)
        for slope in (0.01, 0.1, 0.2)
    },
}

_REDUCTIONS: dict[str, Function] = {name: getattr(torch, name) for name in ("mean", "sum", "amax")}


# how many of a function's arguments are exchanged for other arrays
_EXCHANGED = {
    **dict.fromkeys(("add", "sub", "mul", "matmul"), 2),
    **dict.fromkeys(("linear", "layer_norm", "softmax", "getitem", "cat", "mean"), 1),
}


def changes(c: Call) -> Changes:
    """Yield the possible changes of a call, likely changes first.

    Computing a changed result may raise an error.
    """
    for kinds, family in _FAMILIES.items():
        if c.kind in kinds.split():
            yield from family(c)
    if not is_float(c.out):
        return
    arithmetic = ("add", "sub", "mul", "div", "rsub")
    if keeps_shape(c) and c.name not in arithmetic:
        yield f"{c.name} left out", lambda: c.x + 0
    count = _EXCHANGED.get(c.name, 0)
    for place, given in enumerate(c.args[:count]):
        if not is_float(given) or given.ndim < 2:
            continue
        for source, other in c.others:
            if other.shape == given.shape and other is not given:
                title = f"{source}{AS_ARGUMENT} {place + 1} of {c.name}"
                yield title, lambda: c.with_argument(place, other)


def _activated(c: Call) -> Changes:
    """Yield a change for each usual activation: it comes before the call."""
    for name in ("relu", "silu", "gelu"):
        title = f"{name} before it"
        yield title, lambda: c.again(input=_ACTIVATIONS[name](c.x))


def _eps(c: Call) -> float:
    """Return what a norm adds to the variance: if it is None, the smallest relative step."""
    return c.bound.get("eps", 1e-5) or torch.finfo(c.x.dtype).eps


def _norm(c: Call) -> Changes:
    b = c.bound
    x = c.x
    eps = _eps(c)
    for other in _EPS:
        title = f"eps {other:g} for {eps:g}"
        yield title, lambda: c.again(eps=other)
    yield "no bias added", lambda: c.again(bias=None)
    yield "no weight multiplied", lambda: c.again(weight=None)
    yield from _activated(c)
    if c.name == "batch_norm" and not b.get("training"):
        yield (
            "the batch's statistics",
            lambda: c.again(running_mean=None, running_var=None, training=True),
        )
    if c.name == "group_norm":
        channels = x.shape[1]
        own = b["num_groups"]
        for groups in range(1, channels + 1):
            if channels % groups == 0:
                title = f"{groups} groups for {own}"
                yield title, lambda: c.again(num_groups=groups)
    if x.ndim == 5:
        frames = x.transpose(1, 2)
        each = frames.flatten(0, 1)
        yield (
            "each frame (axis 2) alone",
            lambda: c.again(input=each).reshape(frames.shape).transpose(1, 2),
        )


def _layer_norm(c: Call) -> Changes:
    """Yield what comes after `_norm`: other statistics, and other axes."""
    b = c.bound
    x = c.x
    weight = b.get("weight")
    bias = b.get("bias")
    eps = _eps(c)
    dims = tuple(range(-len(b["normalized_shape"]), 0))
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
    yield "variance divided by n − 1 instead of n", lambda: affine(centred * (n_1 + eps).rsqrt())
    for axis in range(1, last if len(dims) == 1 else 0):
        turned = x.transpose(axis, -1)
        normalized = F.layer_norm(turned, turned.shape[-1:], eps=eps)
        plain = normalized.transpose(axis, -1)
        yield f"normalized over axis {axis} for {last}", lambda: affine(plain)
        yield (
            f"normalized and weighted over axis {axis} for {last}",
            lambda: c.again(input=turned).transpose(axis, -1),
        )


def _same(
    x: Any, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> list[int]:
    """Return the padding of MindSpore's pad_mode "same" for `x`, in the order of `F.pad`."""
    pads: list[int] = []
    sizes = x.shape[2:]
    for size, k, s, d in zip(sizes, kernel, stride, dilation, strict=True):
        pads = [*same_pads(size, k, s, d), *pads]
    return pads


def _conv(c: Call) -> Changes:
    b = c.bound
    x = c.x
    n = x.ndim - 2
    weight = b["weight"]
    given = b.get("padding", 0)
    yield "no bias added", lambda: c.again(bias=None)
    yield "the kernel transposed", lambda: c.again(weight=weight.transpose(2, 3))
    if c.kind == "conv_transpose":
        yield "no output padding", lambda: c.again(output_padding=0)
        return
    stride = as_tuple(b.get("stride", 1), n)
    dilation = as_tuple(b.get("dilation", 1), n)
    same = _same(x, weight.shape[2:], stride, dilation)
    padding = 0 if isinstance(given, str) else given
    each = _each_side(as_tuple(padding, n))
    for padded, pads in {
        "padding of pad_mode same": same,
        "no padding": [0] * 2 * n,
        "one less of padding": [one - 1 for one in each],
    }.items():
        title = f"{padded} instead of {given}"
        yield title, lambda: c.again(input=F.pad(x, pads), padding=0)
    for mode in ("reflect", "replicate"):
        title = f"padding by {mode} instead of zeros"
        yield title, lambda: c.again(input=F.pad(x, each, mode=mode), padding=0)
    yield from _activated(c)


def _pad(c: Call) -> Changes:
    """Yield other kinds of padding, and the padding on the other side."""
    b = c.bound
    x = c.x
    pads = list(b["pad"])
    mode = b.get("mode", "constant")
    value = b.get("value") or 0.0
    kinds = {"constant": "zeros" if value == 0 else f"{value:g}"}
    own = kinds.get(mode, mode)
    for other in ("reflect", "replicate", "circular"):
        if other != mode:
            title = f"padding by {other} for {own}"
            yield title, lambda: F.pad(x, pads, mode=other)
    if own != "zeros":
        yield f"padding by zeros for {own}", lambda: F.pad(x, pads)
    sides = [pads[place ^ 1] for place in range(len(pads))]
    yield f"padding {sides} for {pads}", lambda: F.pad(x, sides, mode=mode, value=b.get("value"))


def _each_side(padding: Sequence[int]) -> list[int]:
    """Return a padding before and after each axis, in the order of `F.pad`."""
    pads = []
    for one in reversed(padding):
        pads += [one, one]
    return pads


def _pool(c: Call) -> Changes:
    b = c.bound
    x = c.x
    n = x.ndim - 2
    kernel = as_tuple(b["kernel_size"], n)
    padding = as_tuple(b.get("padding", 0), n)
    ceil = bool(b.get("ceil_mode"))
    stride = as_tuple(b.get("stride") or kernel, n)
    average = getattr(F, f"avg_pool{n}d")
    largest = getattr(F, f"max_pool{n}d")
    same = _same(x, kernel, stride, [1] * n)
    title = f"ceil_mode {not ceil} for {ceil}"
    yield title, lambda: c.again(ceil_mode=not ceil)
    yield f"no padding for {padding}", lambda: c.again(padding=0)

    def most(pads: Sequence[int], value: float) -> torch.Tensor:
        padded = F.pad(x, pads, value=value)
        return largest(padded, kernel, stride)

    if c.kind == "max_pool":
        title = f"padding of pad_mode same instead of {padding}"
        yield title, lambda: most(same, -math.inf)
        each = _each_side(padding)
        yield "padding with zeros instead of −∞", lambda: most(each, 0.0)
        yield "an average for the maximum", lambda: average(x, kernel, stride, padding, ceil)
        return
    inside = b.get("count_include_pad", True)
    ones = F.pad(torch.ones_like(x), same)
    whole = average(F.pad(x, same), kernel, stride)
    title = f"count_include_pad {not inside} for {inside}"
    yield title, lambda: c.again(count_include_pad=not inside)
    yield "a maximum for the average", lambda: largest(x, kernel, stride, padding, ceil_mode=ceil)
    title = f"padding of pad_mode same, not counted, instead of {padding}"
    yield title, lambda: whole / average(ones, kernel, stride)


def _linear(c: Call) -> Changes:
    weight = c.bound["weight"]
    yield "the weight transposed", lambda: c.again(weight=weight.T)
    yield (
        "the weight reshaped instead of transposed",
        lambda: c.again(weight=weight.reshape(weight.shape[::-1]).T),
    )
    yield "no bias added", lambda: c.again(bias=None)
    yield from _activated(c)


def _matmul(c: Call) -> Changes:
    a, b = c.args[:2]
    yield "the second factor transposed", lambda: torch.matmul(a, b.mT)
    yield "the factors exchanged", lambda: torch.matmul(b, a)
    yield "the product transposed", lambda: c.out.mT


def _einsum(c: Call) -> Changes:
    equation, *given = c.args
    operands = as_tuple(given[0]) if len(given) == 1 else given
    left, _, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    for t, term in enumerate(terms):
        for i, j in pairs(len(term)):
            others = list(terms)
            others[t] = "".join(exchanged(term, i, j))
            other = f"{','.join(others)}->{right}"
            title = f"einsum {other} for {equation}"
            yield title, lambda: torch.einsum(other, *operands)
    for i, j in pairs(len(right)):
        indices = "".join(exchanged(right, i, j))
        other = f"{left}->{indices}"
        title = f"einsum {other}, reshaped, for {equation}"
        yield title, lambda: torch.einsum(other, *operands).reshape(c.out.shape)


def _pointwise(c: Call) -> Changes:
    own = c.name
    if c.kwargs.get("approximate") == "tanh":
        own = "tanh GELU"
    for name, function in _ACTIVATIONS.items():
        if name != own:
            yield f"{name} for {own}", lambda: function(c.x)


def _limited(c: Call) -> Changes:
    b = c.bound
    least = b.get("min", b.get("min_val", 0.0))
    most = b.get("max", b.get("max_val", 6.0))
    yield "no upper limit", lambda: c.x.clamp(min=least)
    yield "no lower limit", lambda: c.x.clamp(max=most)


def _product(c: Call) -> Changes:
    a, b = c.args[:2]
    scalars = [one for one in (b, a) if is_number(one)]
    if not scalars:
        yield "the second factor left out", lambda: a.expand_as(c.out) + 0
        yield "the first factor left out", lambda: b.expand_as(c.out) + 0
        if a.shape == b.shape:
            for name in ("gelu", "tanh GELU", "silu", "quick GELU", "relu"):
                title = f"{name} of the first factor instead of the product"
                yield title, lambda: _ACTIVATIONS[name](a)
        return
    scalar = scalars[0]
    other = a if scalar is b else b
    number = float(scalar.detach() if isinstance(scalar, torch.Tensor) else scalar)
    value = f"{number:.4g}"
    verb = "multiplied" if c.name == "mul" else "divided"
    own = f"{verb} by {value}"
    yield f"not {own}", lambda: other + 0
    for p in (-1, -0.5, 0.5, 1, 2, -2):
        other_verb = "multiplied" if p > 0 else "divided"
        exponent = "" if abs(p) == 1 else f"^{abs(p):g}"
        title = f"{other_verb} by {value}{exponent} for {own}"
        yield title, lambda: other * scalar**p
    yield "the other sign", lambda: -c.out
    if 0 < number < 1 and c.name == "mul":
        yield f"multiplied by {1 - number:.4g} for {own}", lambda: other * (1 - number)
    if number.is_integer():
        for near in (number - 1, number + 1):
            title = f"{verb} by {near:g} for {own}"
            yield title, lambda: c.with_argument(1 if scalar is b else 0, near)
    if c.name != "mul" and scalar is not b:
        return
    for size in sorted({size for _, array in c.others for size in array.shape} - {0, 1}):
        for factor, p in {f"multiplied by {size}^-0.5": -0.5, f"divided by {size}": -1.0}.items():
            yield f"{factor} for {own}", lambda: other * size**p


def _power(c: Call) -> Changes:
    own = c.args[1]
    for exponent in (0.5, 1.0, 1.5, 2.0, 3.0, 4.0):
        yield f"to the power of {exponent:g} for {own:g}", lambda: c.x**exponent


def _sum(c: Call) -> Changes:
    a, b = c.args[:2]
    yield "the other sign", lambda: -c.out
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
        scalar, other = (b, a) if isinstance(a, torch.Tensor) else (a, b)
        yield f"{scalar:g} left out", lambda: other + 0
        if 0 < abs(scalar) < 0.02:
            for eps in _EPS:
                title = f"eps {eps:g} for {scalar:g}"
                yield title, lambda: other + eps
        return
    yield "the second term left out", lambda: a.expand_as(c.out) + 0
    yield "the first term left out", lambda: b.expand_as(c.out) + 0
    is_sum = c.name == "add"
    yield "the other sign of the second term", lambda: a - b if is_sum else a + b


def _item(c: Call) -> Changes:
    index = as_tuple(c.args[1])
    if len(index) == 1 and isinstance(index[0], torch.Tensor) and index[0].dtype == torch.bool:
        yield "all entries for those of the mask", lambda: c.x + 0
    for place, one in enumerate(index):
        if one is None or one is Ellipsis or isinstance(one, torch.Tensor):
            return
        size = c.x.shape[place]
        own = f"axis {place}"

        def at(other: Any, place: int = place) -> torch.Tensor:
            changed = list(index)
            changed[place] = other
            return c.x[tuple(changed)]

        if isinstance(one, int):
            own = f"axis {place} for [{one}]"
            same = {one, one % size, one - size}
            for other in {0, 1, -1} - same:
                yield f"[{other}] of {own}", lambda: at(other)
            earlier = [before for before in index[:place] if isinstance(before, int)]
            axis = place - len(earlier)
            for name, reduce in _REDUCTIONS.items():
                title = f"{name} over {own}"
                yield title, lambda: reduce(at(slice(None)), axis)
        elif one.start or one.stop:
            count = len(range(*one.indices(size)))
            title = f"the last {count} entries of {own}"
            yield title, lambda: at(slice(size - count, None))
            title = f"the first {count} entries of {own}"
            yield title, lambda: at(slice(count))


def _where(c: Call) -> Changes:
    condition, a, b = c.args
    yield "the condition inverted", lambda: torch.where(condition, b, a)
    yield "the condition always true", lambda: torch.where(torch.ones_like(condition), a, b)
    yield "the condition never true", lambda: torch.where(torch.zeros_like(condition), a, b)


def _masked_fill(c: Call) -> Changes:
    mask = c.bound["mask"]
    value = float(c.bound["value"])
    yield "no mask", lambda: c.x + 0
    yield "the mask inverted", lambda: c.x.masked_fill(~mask, value)
    for other in {0.0, -1e9, -1e4, -math.inf} - {value}:
        title = f"filled with {other:g} for {value:g}"
        yield title, lambda: c.x.masked_fill(mask, other)


def _reduced(c: Call) -> Changes:
    x = c.x
    given = c.bound.get("dim")
    keep = bool(c.kwargs.get("keepdim", False))
    dims = tuple(range(x.ndim))
    if given is not None and not isinstance(given, bool):
        dims = tuple(axis % x.ndim for axis in as_tuple(given))
    if c.name in ("std", "var"):
        function = getattr(torch, c.name)
        divided_by_n = function(x, dims, correction=0, keepdim=keep)
        by_n = torch.equal(divided_by_n, c.out)
        title = "divided by n − 1 instead of n" if by_n else "divided by n instead of n − 1"
        yield title, lambda: function(x, dims, correction=int(by_n), keepdim=keep)
    elif c.name == "logsumexp":
        yield "log(sum(exp)), which overflows,", lambda: x.exp().sum(dims, keepdim=keep).log()
    if c.name not in ("softmax", "log_softmax", "normalize"):
        for name, reduce in _REDUCTIONS.items():
            title = f"{name} for {c.name}"
            yield title, lambda: reduce(x, dims, keepdim=keep)
    own = ", ".join(map(str, dims))
    for axes in itertools.combinations(range(x.ndim), len(dims)):
        others = ", ".join(map(str, axes))
        title = f"{c.name} over axis {others} for {own}"
        dim = axes if len(axes) > 1 else axes[0]
        yield title, lambda: c.again(dim=dim)


def _embedding(c: Call) -> Changes:
    x = c.x
    yield "rows of id 0 set to zeros", lambda: c.out * (x != 0)[..., None]
    yield "multiplied by √width", lambda: c.out * c.out.shape[-1] ** 0.5
    weight = c.bound["weight"]
    yield "the next row", lambda: F.embedding((x + 1) % len(weight), weight)


def _repeat_interleave(c: Call) -> Changes:
    dim = c.bound.get("dim")
    title = "repeat for repeat_interleave"
    yield title, lambda: torch.cat([c.x] * int(c.args[1]), dim)


def _repeat(c: Call) -> Changes:
    counts = c.args[1:]
    if len(counts) == 1:
        counts = as_tuple(counts[0])
    y = c.x
    new_axes = len(counts) - y.ndim
    for axis, count in enumerate(counts[new_axes:]):
        y = y.repeat_interleave(count, axis)
    yield "repeat_interleave for repeat", lambda: y


def _lstm(c: Call) -> Changes:
    out, h, cell = c.out
    yield "the cell state for the hidden state", lambda: (out, cell, h)


def _interpolate(c: Call) -> Changes:
    aligned = bool(c.bound.get("align_corners"))
    mode = c.bound.get("mode", "nearest")
    title = f"align_corners {not aligned} for {aligned}"
    yield title, lambda: c.again(align_corners=not aligned)
    for other in ("nearest", "bilinear", "bicubic", "nearest-exact", "area"):
        title = f"{other} for {mode}"
        yield title, lambda: c.again(mode=other, align_corners=None)
    x = c.x
    times = [after // before for after, before in zip(c.out.shape[2:], x.shape[2:], strict=True)]
    yield f"tiled for {mode}", lambda: x.repeat(1, 1, *times)


_FAMILIES: dict[str, Callable[[Call], Changes]] = {
    "layer_norm group_norm batch_norm instance_norm rms_norm": _norm,
    "layer_norm": _layer_norm,
    "conv conv_transpose": _conv,
    "pad": _pad,
    "avg_pool max_pool": _pool,
    "linear": _linear,
    "matmul": _matmul,
    "einsum": _einsum,
    "relu gelu silu leaky_relu elu relu6 tanh sigmoid hardswish hardsigmoid": _pointwise,
    "relu6 clamp hardtanh": _limited,
    "mul div": _product,
    "pow": _power,
    "add sub rsub": _sum,
    "cat stack chunk split unbind": parts_changes,
    "getitem": _item,
    "reshape flatten unflatten transpose permute t": axes_changes,
    "where": _where,
    "masked_fill": _masked_fill,
    "softmax log_softmax normalize mean sum std var max min amax amin logsumexp norm": _reduced,
    "embedding": _embedding,
    "repeat_interleave": _repeat_interleave,
    "repeat tile": _repeat,
    "lstm": _lstm,
    "cross_entropy mse_loss l1_loss smooth_l1_loss huber_loss": loss_changes,
    "binary_cross_entropy_with_logits binary_cross_entropy nll_loss kl_div": loss_changes,
    "interpolate": _interpolate,
}
