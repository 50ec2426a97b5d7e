"""Change a torch call in ways that imitate common mistakes in ports."""
# ruff: noqa: B023 (each function is called before its loop continues)

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F

from resnet_fn.parity.explain.calls import Call, Changes, is_float

Function = Callable[..., Any]

# part of the description of a change that replaces an argument by another array
OTHER = " as argument"

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


def changes(c: Call) -> Changes:
    """Yield the possible changes of a call, likely changes first.

    Computing a changed result may raise an error.
    """
    for kinds, family in _FAMILIES.items():
        if c.kind in kinds.split():
            yield from family(c)
    if not is_float(c.out):
        return
    if (
        is_float(c.x)
        and c.x.shape == c.out.shape
        and c.name not in ("add", "sub", "mul", "div", "rsub")
    ):
        yield f"{c.name} left out", lambda: c.x + 0
    both, first = (
        ("add", "sub", "mul", "matmul"),
        ("linear", "layer_norm", "softmax", "getitem", "cat", "mean"),
    )
    for place, given in enumerate(c.args[: 2 if c.name in both else int(c.name in first)]):
        for words, other in c.others if is_float(given) and given.ndim > 1 else ():
            if other.shape == given.shape and other is not given:
                yield (
                    f"{words}{OTHER} {place + 1} of {c.name}",
                    lambda: c.with_argument(place, other),
                )


def gradient_changes(c: Call) -> Changes:
    """Yield the possible changes of a call that change its gradients, but not its result."""
    if not (is_float(c.out) and c.out.requires_grad):
        return
    if c.name == "embedding" and (c.bound.get("padding_idx") or 0) >= 0:
        yield (
            f"its padding row {c.bound.get('padding_idx')} trained",
            lambda: F.embedding(c.x, c.bound["weight"]),
        )
    if is_float(c.x) and c.x.shape == c.out.shape and not c.name.endswith("norm"):
        yield "the gradient passed through as it is", lambda: c.x + (c.out - c.x).detach()
    for place, given in enumerate(c.args):
        if is_float(given) and given.requires_grad:
            yield (
                f"no gradient to argument {place + 1} of {c.name}",
                lambda: c.with_argument(place, given.detach()),
            )


def _tuple(value: Any, n: int = 1) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,) * n


def _exchanged(values: Sequence[Any], i: int, j: int) -> list[Any]:
    return [values[{i: j, j: i}.get(k, k)] for k in range(len(values))]


def _norm(c: Call) -> Changes:
    b, x, weight, bias = c.bound, c.x, c.bound.get("weight"), c.bound.get("bias")
    eps = b.get("eps", 1e-5) or torch.finfo(x.dtype).eps
    for other in _EPS:
        yield f"eps {other:g} for {eps:g}", lambda: c.again(eps=other)
    yield "no bias added", lambda: c.again(bias=None)
    yield "no weight multiplied", lambda: c.again(weight=None)
    if c.name == "batch_norm" and not b.get("training"):
        yield (
            "the batch's statistics",
            lambda: c.again(running_mean=None, running_var=None, training=True),
        )
    for groups in (
        [n for n in range(1, x.shape[1] + 1) if x.shape[1] % n == 0]
        if c.name == "group_norm"
        else []
    ):
        yield f"{groups} groups for {b['num_groups']}", lambda: c.again(num_groups=groups)
    if x.ndim == 5:
        frames = x.transpose(1, 2)
        each = frames.flatten(0, 1)
        yield (
            "each frame (axis 2) alone",
            lambda: c.again(input=each).reshape(frames.shape).transpose(1, 2),
        )
    if c.name != "layer_norm":
        return
    dims, last = tuple(range(-len(b["normalized_shape"]), 0)), x.ndim - 1
    centred = x - x.mean(dims, keepdim=True)
    affine = lambda y: y * (1 if weight is None else weight) + (0 if bias is None else bias)  # noqa: E731
    n_1 = x.var(dims, keepdim=True)
    yield (
        "no mean subtracted (RMSNorm)",
        lambda: affine(x * (x.square().mean(dims, keepdim=True) + eps).rsqrt()),
    )
    yield "variance divided by n − 1 instead of n", lambda: affine(centred * (n_1 + eps).rsqrt())
    for axis in range(1, last if len(dims) == 1 else 0):
        turned = x.transpose(axis, -1)
        plain = F.layer_norm(turned, turned.shape[-1:], eps=eps).transpose(axis, -1)
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
    for size, k, s, d in zip(x.shape[2:], kernel, stride, dilation, strict=True):
        total = max((math.ceil(size / s) - 1) * s + (k - 1) * d + 1 - size, 0)
        pads = [total // 2, total - total // 2, *pads]
    return pads


def _conv(c: Call) -> Changes:
    b, x, n, weight, given = (
        c.bound,
        c.x,
        c.x.ndim - 2,
        c.bound["weight"],
        c.bound.get("padding", 0),
    )
    yield "no bias added", lambda: c.again(bias=None)
    yield "the kernel transposed", lambda: c.again(weight=weight.transpose(2, 3))
    if c.kind == "conv_transpose":
        yield "no output padding", lambda: c.again(output_padding=0)
        return
    stride, dilation = (_tuple(b.get(name, 1), n) for name in ("stride", "dilation"))
    same = _same(x, weight.shape[2:], stride, dilation)
    each = [
        one for one in reversed(_tuple(0 if isinstance(given, str) else given, n)) for _ in range(2)
    ]
    for words, pads in {
        "padding of pad_mode same": same,
        "no padding": [0] * 2 * n,
        "one less of padding": [one - 1 for one in each],
    }.items():
        yield f"{words} instead of {given}", lambda: c.again(input=F.pad(x, pads), padding=0)
    for mode in ("reflect", "replicate"):
        yield (
            f"padding by {mode} instead of zeros",
            lambda: c.again(input=F.pad(x, each, mode=mode), padding=0),
        )


def _pool(c: Call) -> Changes:
    b, x, n = c.bound, c.x, c.x.ndim - 2
    kernel, padding, ceil = (
        _tuple(b["kernel_size"], n),
        _tuple(b.get("padding", 0), n),
        bool(b.get("ceil_mode")),
    )
    stride = _tuple(b.get("stride") or kernel, n)
    average, largest, same = (
        getattr(F, f"avg_pool{n}d"),
        getattr(F, f"max_pool{n}d"),
        _same(x, kernel, stride, [1] * n),
    )
    yield f"ceil_mode {not ceil} for {ceil}", lambda: c.again(ceil_mode=not ceil)
    yield f"no padding for {padding}", lambda: c.again(padding=0)
    most = lambda pads, value: largest(F.pad(x, pads, value=value), kernel, stride)  # noqa: E731
    if c.kind == "max_pool":
        yield f"padding of pad_mode same instead of {padding}", lambda: most(same, -math.inf)
        yield (
            "padding with zeros instead of −∞",
            lambda: most([p for p in reversed(padding) for _ in "ab"], 0.0),
        )
        yield "an average for the maximum", lambda: average(x, kernel, stride, padding, ceil)
        return
    inside, ones = b.get("count_include_pad", True), F.pad(torch.ones_like(x), same)
    whole = average(F.pad(x, same), kernel, stride)
    yield (
        f"count_include_pad {not inside} for {inside}",
        lambda: c.again(count_include_pad=not inside),
    )
    yield "a maximum for the average", lambda: largest(x, kernel, stride, padding, ceil_mode=ceil)
    yield (
        f"padding of pad_mode same, not counted, instead of {padding}",
        lambda: whole / average(ones, kernel, stride),
    )


def _matrix(c: Call) -> Changes:
    if c.name == "linear":
        weight = c.bound["weight"]
        yield "the weight transposed", lambda: c.again(weight=weight.T)
        yield (
            "the weight reshaped instead of transposed",
            lambda: c.again(weight=weight.reshape(weight.shape[::-1]).T),
        )
        yield "no bias added", lambda: c.again(bias=None)
    elif c.name == "matmul":
        a, b = c.args[:2]
        yield "the second factor transposed", lambda: torch.matmul(a, b.mT)
        yield "the factors exchanged", lambda: torch.matmul(b, a)
        yield "the product transposed", lambda: c.out.mT
    else:
        equation, *given = c.args
        operands = _tuple(given[0]) if len(given) == 1 else given
        left, _, right = equation.replace(" ", "").partition("->")
        terms = left.split(",")
        for t, term in enumerate(terms):
            for i, j in itertools.combinations(range(len(term)), 2):
                other = (
                    ",".join([*terms[:t], "".join(_exchanged(term, i, j)), *terms[t + 1 :]])
                    + f"->{right}"
                )
                yield f"einsum {other} for {equation}", lambda: torch.einsum(other, *operands)
        for i, j in itertools.combinations(range(len(right)), 2):
            other, shape = f"{left}->{''.join(_exchanged(right, i, j))}", c.out.shape
            yield (
                f"einsum {other}, reshaped, for {equation}",
                lambda: torch.einsum(other, *operands).reshape(shape),
            )


def _pointwise(c: Call) -> Changes:
    own, x, b = "tanh GELU" if c.kwargs.get("approximate") == "tanh" else c.name, c.x, c.bound
    for words, function in _ACTIVATIONS.items() if c.name not in ("clamp", "hardtanh") else ():
        if words != own:
            yield f"{words} for {own}", lambda: function(x)
    if c.name in ("relu6", "clamp", "hardtanh"):
        least, most = (
            b.get(one, b.get(f"{one}_val", limit)) for one, limit in (("min", 0.0), ("max", 6.0))
        )
        yield "no upper limit", lambda: x.clamp(min=least)
        yield "no lower limit", lambda: x.clamp(max=most)


def _product(c: Call) -> Changes:
    a, b = c.args[:2]
    scalar = next(
        (one for one in (b, a) if not isinstance(one, torch.Tensor) or one.ndim == 0), None
    )
    if scalar is None:
        yield "the second factor left out", lambda: a.expand_as(c.out) + 0
        yield "the first factor left out", lambda: b.expand_as(c.out) + 0
        for words in (
            ("gelu", "tanh GELU", "silu", "quick GELU", "relu") if a.shape == b.shape else ()
        ):
            yield (
                f"{words} of the first factor instead of the product",
                lambda: _ACTIVATIONS[words](a),
            )
        return
    other, power, value = (
        (a if scalar is b else b),
        (1 if c.name == "mul" else -1),
        f"{float(scalar):.4g}",
    )
    yield f"not {'multiplied' if power > 0 else 'divided'} by {value}", lambda: other + 0
    own = f"{'multiplied' if power > 0 else 'divided'} by {value}"
    for p in (-1, -0.5, 0.5, 1, 2, -2):
        words = (
            f"{'multiplied' if p > 0 else 'divided'} by "
            f"{value}{f'^{abs(p):g}' * (abs(p) != 1)} for {own}"
        )
        yield words, lambda: other * scalar**p
    yield "the other sign", lambda: -c.out


def _sum(c: Call) -> Changes:
    a, b = c.args[:2]
    yield "the other sign", lambda: -c.out
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
        scalar, other = (b, a) if isinstance(a, torch.Tensor) else (a, b)
        yield f"{scalar:g} left out", lambda: other + 0
        for eps in _EPS if 0 < abs(scalar) < 0.02 else ():
            yield f"eps {eps:g} for {scalar:g}", lambda: other + eps
        return
    yield "the second term left out", lambda: a.expand_as(c.out) + 0
    yield "the first term left out", lambda: b.expand_as(c.out) + 0
    yield "the other sign of the second term", lambda: a - b if c.name == "add" else a + b


def _parts(c: Call) -> Changes:
    x, dim = c.x, c.bound.get("dim", 0)
    if c.name in ("cat", "stack"):
        function = getattr(torch, c.name)
        yield "the parts in the other order", lambda: function(list(x)[::-1], dim)
        return
    for i, j in itertools.combinations(range(len(c.out)), 2):
        yield f"parts {i} and {j} exchanged", lambda: tuple(_exchanged(c.out, i, j))


def _item(c: Call) -> Changes:
    index = _tuple(c.args[1])
    for place, one in enumerate(index):
        if one is None or one is Ellipsis or isinstance(one, torch.Tensor):
            return
        size, own = (
            c.x.shape[place],
            f"axis {place} for [{one}]" if isinstance(one, int) else f"axis {place}",
        )
        at = lambda other: c.x[(*index[:place], other, *index[place + 1 :])]  # noqa: E731
        if isinstance(one, int):
            for other in {0, 1, -1} - {one, one % size, one - size}:
                yield f"[{other}] of {own}", lambda: at(other)
            axis = place - sum(isinstance(earlier, int) for earlier in index[:place])
            for words, reduce in _REDUCTIONS.items():
                yield f"{words} over {own}", lambda: reduce(at(slice(None)), axis)
        elif one.start or one.stop:
            count = len(range(*one.indices(size)))
            yield f"the last {count} entries of {own}", lambda: at(slice(size - count, None))
            yield f"the first {count} entries of {own}", lambda: at(slice(count))


def _axes(c: Call) -> Changes:
    x, shape = c.x, list(c.out.shape)
    if c.kind in ("reshape", "flatten", "unflatten"):
        for i, j in itertools.combinations(range(x.ndim), 2):
            yield (
                f"axes {i} and {j} exchanged before it is reshaped",
                lambda: x.transpose(i, j).reshape(shape),
            )
        for i, j in itertools.combinations(range(len(shape)), 2):
            other = _exchanged(shape, i, j)
            yield f"reshaped to {other} for {shape}", lambda: x.reshape(other)
            yield (
                f"reshaped to {other}, then axes {i} and {j} exchanged",
                lambda: x.reshape(other).transpose(i, j),
            )
        return
    yield "reshaped for transposed", lambda: x.reshape(shape)
    yield "not transposed", lambda: x
    for order in (
        itertools.permutations(range(x.ndim)) if c.name == "permute" and x.ndim < 6 else ()
    ):
        if list(x.permute(order).shape) == shape:
            yield f"permuted by {order}", lambda: x.permute(order)


def _mask(c: Call) -> Changes:
    if c.name == "where":
        condition, a, b = c.args
        yield "the condition inverted", lambda: torch.where(condition, b, a)
        yield "the condition always true", lambda: torch.where(torch.ones_like(condition), a, b)
        yield "the condition never true", lambda: torch.where(torch.zeros_like(condition), a, b)
        return
    mask, value = c.bound["mask"], float(c.bound["value"])
    yield "no mask", lambda: c.x + 0
    yield "the mask inverted", lambda: c.x.masked_fill(~mask, value)
    for other in {0.0, -1e9, -1e4, -math.inf} - {value}:
        yield f"filled with {other:g} for {value:g}", lambda: c.x.masked_fill(mask, other)


def _reduced(c: Call) -> Changes:
    x, given, keep = c.x, c.bound.get("dim"), bool(c.kwargs.get("keepdim", False))
    whole = given is None or isinstance(given, bool)
    dims = tuple(range(x.ndim)) if whole else tuple(d % x.ndim for d in _tuple(given))
    if c.name in ("std", "var"):
        function = getattr(torch, c.name)
        by_n = torch.equal(function(x, dims, correction=0, keepdim=keep), c.out)
        words = "divided by n − 1 instead of n" if by_n else "divided by n instead of n − 1"
        yield words, lambda: function(x, dims, correction=int(by_n), keepdim=keep)
    elif c.name == "logsumexp":
        yield "log(sum(exp)), which overflows,", lambda: x.exp().sum(dims, keepdim=keep).log()
    for words, reduce in (
        _REDUCTIONS.items() if c.name not in ("softmax", "log_softmax", "normalize") else ()
    ):
        yield f"{words} for {c.name}", lambda: reduce(x, dims, keepdim=keep)
    for axes in itertools.combinations(range(x.ndim), len(dims)):
        words = f"{c.name} over axis {', '.join(map(str, axes))} for {', '.join(map(str, dims))}"
        yield words, lambda: c.again(dim=axes if len(axes) > 1 else axes[0])


def _rows(c: Call) -> Changes:
    x = c.x
    if c.name == "embedding":
        yield "rows of id 0 set to zeros", lambda: c.out * (x != 0)[..., None]
        yield "multiplied by √width", lambda: c.out * c.out.shape[-1] ** 0.5
        yield (
            "the next row",
            lambda: F.embedding((x + 1) % len(c.bound["weight"]), c.bound["weight"]),
        )
    elif c.name == "repeat_interleave":
        yield (
            "repeat for repeat_interleave",
            lambda: torch.cat([x] * int(c.args[1]), c.bound.get("dim")),
        )
    else:
        counts, y = _tuple(c.args[1]) if len(c.args) == 2 else c.args[1:], x
        for axis, count in enumerate(counts[len(counts) - x.ndim :]):
            y = y.repeat_interleave(count, axis)
        yield "repeat_interleave for repeat", lambda: y


def _lstm(c: Call) -> Changes:
    out, h, cell = c.out
    yield "the cell state for the hidden state", lambda: (out, cell, h)


def _loss(c: Call) -> Changes:
    b, x = c.bound, c.x
    for reduction in ("sum", "mean"):
        yield f"{reduction} for {b.get('reduction', 'mean')}", lambda: c.again(reduction=reduction)
    smoothing, classes = b.get("label_smoothing", 0.0), x.shape[-1]
    for other in (0.0, 0.1, 0.2):
        yield f"label smoothing {other:g} for {smoothing:g}", lambda: c.again(label_smoothing=other)
    spread = f"label smoothing spread over the other {classes - 1} classes instead of all {classes}"
    yield spread, lambda: c.again(label_smoothing=smoothing * classes / (classes - 1))
    yield "softmax before it", lambda: c.again(input=torch.softmax(x, 1))
    yield "logits taken as log-probabilities", lambda: F.nll_loss(x, b["target"])


def _interpolate(c: Call) -> Changes:
    aligned, mode = bool(c.bound.get("align_corners")), c.bound.get("mode", "nearest")
    yield f"align_corners {not aligned} for {aligned}", lambda: c.again(align_corners=not aligned)
    for other in ("nearest", "bilinear", "bicubic", "nearest-exact", "area"):
        yield f"{other} for {mode}", lambda: c.again(mode=other, align_corners=None)


_FAMILIES: dict[str, Callable[[Call], Changes]] = {
    "layer_norm group_norm batch_norm instance_norm rms_norm": _norm,
    "conv conv_transpose": _conv,
    "avg_pool max_pool": _pool,
    "linear matmul einsum": _matrix,
    "relu gelu silu leaky_relu elu relu6 tanh sigmoid hardswish hardsigmoid": _pointwise,
    "clamp hardtanh": _pointwise,
    "mul div": _product,
    "add sub rsub": _sum,
    "cat stack chunk split unbind": _parts,
    "getitem": _item,
    "reshape flatten unflatten transpose permute t": _axes,
    "masked_fill where": _mask,
    "softmax log_softmax normalize mean sum std var max min amax amin logsumexp norm": _reduced,
    "embedding repeat tile repeat_interleave": _rows,
    "lstm": _lstm,
    "cross_entropy mse_loss l1_loss smooth_l1_loss": _loss,
    "interpolate": _interpolate,
}
