"""Change a torch call in ways that imitate common mistakes in ports.

The table `_FAMILIES`, at the end, has a family of changes for each kind of call (`Call.kind`). A
family yields pairs of a title and a function that computes the changed result, likely changes
first. They are tried if the forward pass or the loss differs; of gradients only `gradient_changes`
are. Another change that leaves the result equal is not tried. A title is what the port may do, and for
what: `own` is what the call does now. A change is found again by its title, so a call has each
title once, and every time the same ones. A family for `torch.roll` would be:

    def _roll(call: Call) -> Changes:
        own = call.bound["shifts"]
        title = f"rolled by {-own} for {own}"
        yield title, lambda: call.again(shifts=-own)

Its row of `_FAMILIES` is `("roll", _roll)`. `torch.roll` is not of `torch.nn.functional`, so the
names of its arguments need a row in `_ARGUMENTS` of calls.py, too: `"roll": "input shifts dims"`; a
function of (input, dim) needs none. The docstring of a family has an example of its titles. `Call.kind` is
the name after `_RENAMED` of calls.py, without the number of dimensions: `view` is `reshape`, and
`conv2d` is `conv`. Calls in `_NOT_COUNTED` of calls.py are never changed.

A kind may be in several rows, whose changes follow each other. A family's own code runs as far as
the next `yield`; the function that it yields is called before that goes on, and may fail alone. If
the family's code raises an error, `search` leaves out all further changes of this call, without a
word: so what does not fit each call comes last (as in `layer_changes.layer_norm`).
"""
# ruff: noqa: B023 (each function is called before its loop continues)

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch

from resnet_fn.parity.explain import layer_changes
from resnet_fn.parity.explain.axis_changes import axes_changes, parts_changes
from resnet_fn.parity.explain.calls import Call, Changes
from resnet_fn.parity.explain.loss_changes import loss_changes
from resnet_fn.parity.explain.sequences import as_tuple, exchanged, is_number, keeps_shape, pairs
from resnet_fn.parity.record.torch_decisions import is_float

# part of the title of a change that replaces an argument by another array
AS_ARGUMENT = " as argument"

# how the titles of changes end that may leave something out of a loss
FACTOR_LEFT_OUT, OF_THE_MASK = " factor left out", " of the mask"

_REDUCTIONS: dict[str, Callable[..., Any]] = {
    name: getattr(torch, name) for name in ("mean", "sum", "amax")
}

# how many of a function's arguments are exchanged for other arrays
_EXCHANGED = {
    **dict.fromkeys(("add", "sub", "mul", "matmul"), 2),
    **dict.fromkeys(("linear", "layer_norm", "softmax", "getitem", "cat", "mean"), 1),
}


def changes(call: Call) -> Changes:
    """Yield the possible changes of a call, likely changes first.

    Computing a changed result may raise an error.
    """
    for kinds, family in _FAMILIES:
        if call.kind in kinds.split():
            yield from family(call)
    yield from _any_call(call)


def _any_call(call: Call) -> Changes:
    """Yield changes of a call of any kind: "relu left out"; another array as an argument."""
    if not is_float(call.out):
        return
    if keeps_shape(call) and call.name not in ("add", "sub", "mul", "div", "rsub"):
        title = f"{call.name} left out"
        yield title, lambda: call.x + 0
    count = _EXCHANGED.get(call.name, 0)
    for index, argument in enumerate(call.args[:count]):
        if not is_float(argument) or argument.ndim < 2:
            continue
        for source, other in call.others:
            if other.shape == argument.shape and other is not argument:
                title = f"{source}{AS_ARGUMENT} {index + 1} of {call.name}"
                yield title, lambda: call.with_argument(index, other)


def _matmul(call: Call) -> Changes:
    """Yield other factors: "the second factor transposed"."""
    a, b = call.args[:2]
    yield "the second factor transposed", lambda: torch.matmul(a, b.mT)
    yield "the factors exchanged", lambda: torch.matmul(b, a)
    yield "the product transposed", lambda: call.out.mT


def _einsum(call: Call) -> Changes:
    """Yield other indices: "einsum bij,bik->bjk for bij,bik->bkj"."""
    equation, *rest = call.args
    operands = as_tuple(rest[0]) if len(rest) == 1 else rest
    left, _, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    for index, term in enumerate(terms):
        for i, j in pairs(len(term)):
            others = list(terms)
            others[index] = "".join(exchanged(term, i, j))
            other = f"{','.join(others)}->{right}"
            title = f"einsum {other} for {equation}"
            yield title, lambda: torch.einsum(other, *operands)
    for i, j in pairs(len(right)):
        indices = "".join(exchanged(right, i, j))
        other = f"{left}->{indices}"
        title = f"einsum {other}, reshaped, for {equation}"
        yield title, lambda: torch.einsum(other, *operands).reshape(call.out.shape)


def _pointwise(call: Call) -> Changes:
    """Yield other activations: "tanh GELU for gelu"."""
    own = call.name
    if call.kwargs.get("approximate") == "tanh":
        own = "tanh GELU"
    for name, function in layer_changes.ACTIVATIONS.items():
        if name != own:
            title = f"{name} for {own}"
            yield title, lambda: function(call.x)


def _limited(call: Call) -> Changes:
    """Yield "no upper limit" and "no lower limit"."""
    bound = call.bound
    least = bound.get("min", bound.get("min_val", 0.0))
    most = bound.get("max", bound.get("max_val", 6.0))
    yield "no upper limit", lambda: call.x.clamp(min=least)
    yield "no lower limit", lambda: call.x.clamp(max=most)


def _product(call: Call) -> Changes:
    """Yield the changes of a product or quotient of arrays, or with a number."""
    a, b = call.args[:2]
    if is_number(b):
        yield from _product_with_number(call, 1)
    elif is_number(a):
        yield from _product_with_number(call, 0)
    else:
        yield from _product_of_arrays(call)


def _product_of_arrays(call: Call) -> Changes:
    """Yield other factors: "the second factor left out"."""
    a, b = call.args[:2]
    yield "the second" + FACTOR_LEFT_OUT, lambda: a.expand_as(call.out) + 0
    yield "the first" + FACTOR_LEFT_OUT, lambda: b.expand_as(call.out) + 0
    if a.shape != b.shape:
        return
    for name in ("gelu", "tanh GELU", "silu", "quick GELU", "relu"):
        title = f"{name} of the first factor instead of the product"
        yield title, lambda: layer_changes.ACTIVATIONS[name](a)


def _product_with_number(call: Call, index: int) -> Changes:
    """Yield other numbers: "multiplied by 0.25^2 for multiplied by 0.25".

    `index` is the number's place among the two arguments.
    """
    scalar = call.args[index]
    other = call.args[1 - index]
    number = float(scalar.detach() if isinstance(scalar, torch.Tensor) else scalar)
    value = f"{number:.4g}"
    verb = "multiplied" if call.name == "mul" else "divided"
    own = f"{verb} by {value}"
    if value != "1":
        yield f"not {own}", lambda: other + 0
    for power in (-1, -0.5, 0.5, 1, 2, -2) if value != "1" else ():
        other_verb = "multiplied" if power > 0 else "divided"
        exponent = "" if abs(power) == 1 else f"^{abs(power):g}"
        title = f"{other_verb} by {value}{exponent} for {own}"
        yield title, lambda: other * scalar**power
    yield "the other sign", lambda: -call.out
    if 0 < number < 1 and call.name == "mul":
        title = f"multiplied by {1 - number:.4g} for {own}"
        yield title, lambda: other * (1 - number)
    if number.is_integer():
        for near in (number - 1, number + 1):
            title = f"{verb} by {near:g} for {own}"
            yield title, lambda: call.with_argument(index, near)
    if call.name == "mul" or index == 1:
        yield from _scaled(call, other, own)


def _scaled(call: Call, array: Any, own: str) -> Changes:
    """Yield factors that are sizes of other arrays: "multiplied by 64^-0.5", for `own`."""
    sizes = {size for _, other in call.others for size in other.shape}
    for size in sorted(sizes - {0, 1}):
        title = f"multiplied by {size}^-0.5 for {own}"
        yield title, lambda: array * size**-0.5
        title = f"divided by {size} for {own}"
        yield title, lambda: array * size**-1.0


def _power(call: Call) -> Changes:
    """Yield other exponents: "to the power of 2 for 3"."""
    own = call.args[1]
    for exponent in (0.5, 1.0, 1.5, 2.0, 3.0, 4.0):
        title = f"to the power of {exponent:g} for {own:g}"
        yield title, lambda: call.x**exponent


def _sum(call: Call) -> Changes:
    """Yield the changes of a sum or difference of arrays, or with a number."""
    a, b = call.args[:2]
    yield "the other sign", lambda: -call.out
    if not isinstance(a, torch.Tensor):
        yield from _sum_with_number(b, a)
    elif not isinstance(b, torch.Tensor):
        yield from _sum_with_number(a, b)
    else:
        yield from _sum_of_arrays(call)


def _sum_with_number(array: torch.Tensor, number: float) -> Changes:
    """Yield other numbers: "eps 1e-06 for 1e-05"."""
    title = f"{number:g} left out"
    yield title, lambda: array + 0
    if 0 < abs(number) < 0.02:
        for eps in layer_changes.EPS:
            title = f"eps {eps:g} for {number:g}"
            yield title, lambda: array + eps


def _sum_of_arrays(call: Call) -> Changes:
    """Yield other terms: "the second term left out"."""
    a, b = call.args[:2]
    yield "the second term left out", lambda: a.expand_as(call.out) + 0
    yield "the first term left out", lambda: b.expand_as(call.out) + 0
    is_sum = call.name == "add"
    yield "the other sign of the second term", lambda: a - b if is_sum else a + b


def _item(call: Call) -> Changes:
    """Yield other entries and reductions: "[-1] of axis 1 for [0]"."""
    index = as_tuple(call.args[1])
    if len(index) == 1 and isinstance(index[0], torch.Tensor) and index[0].dtype == torch.bool:
        yield "all entries for those" + OF_THE_MASK, lambda: call.x + 0
    for dim, entry in enumerate(index):
        if entry is None or entry is Ellipsis or isinstance(entry, torch.Tensor):
            return
        size = call.x.shape[dim]
        own = f"axis {dim}"

        def at(other: Any, dim: int = dim) -> torch.Tensor:
            changed = list(index)
            changed[dim] = other
            return call.x[tuple(changed)]

        if isinstance(entry, int):
            own = f"axis {dim} for [{entry}]"
            same = {entry, entry % size, entry - size}
            for other in {0, 1, -1} - same:
                yield f"[{other}] of {own}", lambda: at(other)
            earlier = [before for before in index[:dim] if isinstance(before, int)]
            axis = dim - len(earlier)
            for name, reduce in _REDUCTIONS.items():
                title = f"{name} over {own}"
                yield title, lambda: reduce(at(slice(None)), axis)
        elif entry.start or entry.stop:
            count = len(range(*entry.indices(size)))
            title = f"the last {count} entries of {own}"
            yield title, lambda: at(slice(size - count, None))
            title = f"the first {count} entries of {own}"
            yield title, lambda: at(slice(count))


def _where(call: Call) -> Changes:
    """Yield other conditions: "the condition inverted"."""
    condition, a, b = call.args
    yield "the condition inverted", lambda: torch.where(condition, b, a)
    yield "the condition always true", lambda: torch.where(torch.ones_like(condition), a, b)
    yield "the condition never true", lambda: torch.where(torch.zeros_like(condition), a, b)


def _masked_fill(call: Call) -> Changes:
    """Yield other masks and values: "the mask inverted"."""
    mask = call.bound["mask"]
    value = float(call.bound["value"])
    yield "no mask", lambda: call.x + 0
    yield "the mask inverted", lambda: call.x.masked_fill(~mask, value)
    for other in {0.0, -1e9, -1e4, -math.inf} - {value}:
        title = f"filled with {other:g} for {value:g}"
        yield title, lambda: call.x.masked_fill(mask, other)


def _reduced(call: Call) -> Changes:
    """Yield other axes and reductions: "softmax over axis 1 for 2", "sum for mean"."""
    x = call.x
    own_dim = call.bound.get("dim")
    keep = bool(call.kwargs.get("keepdim", False))
    dims = tuple(range(x.ndim))
    if own_dim is not None and not isinstance(own_dim, bool):
        dims = tuple(axis % x.ndim for axis in as_tuple(own_dim))
    if call.name in ("std", "var"):
        function = getattr(torch, call.name)
        divided_by_n = function(x, dims, correction=0, keepdim=keep)
        by_n = torch.equal(divided_by_n, call.out)
        title = "divided by n − 1 instead of n" if by_n else "divided by n instead of n − 1"
        yield title, lambda: function(x, dims, correction=int(by_n), keepdim=keep)
    elif call.name == "logsumexp":
        yield "log(sum(exp)), which overflows,", lambda: x.exp().sum(dims, keepdim=keep).log()
    if call.name not in ("softmax", "log_softmax", "normalize"):
        for name, reduce in _REDUCTIONS.items():
            title = f"{name} for {call.name}"
            yield title, lambda: reduce(x, dims, keepdim=keep)
    own = ", ".join(map(str, dims))
    for axes in itertools.combinations(range(x.ndim), len(dims)):
        others = ", ".join(map(str, axes))
        title = f"{call.name} over axis {others} for {own}"
        dim = axes if len(axes) > 1 else axes[0]
        yield title, lambda: call.again(dim=dim)


def _repeat_interleave(call: Call) -> Changes:
    """Yield "repeat for repeat_interleave"."""
    dim = call.bound.get("dim")
    yield (
        "repeat for repeat_interleave",
        lambda: torch.cat([call.x] * int(call.args[1]), dim),
    )


def _repeat(call: Call) -> Changes:
    """Yield "repeat_interleave for repeat"."""
    counts = call.args[1:]
    if len(counts) == 1:
        counts = as_tuple(counts[0])
    repeated = call.x
    new_axes = len(counts) - repeated.ndim
    for axis, count in enumerate(counts[new_axes:]):
        repeated = repeated.repeat_interleave(count, axis)
    yield "repeat_interleave for repeat", lambda: repeated


Family = Callable[[Call], Changes]

_NORMS = "layer_norm group_norm batch_norm instance_norm rms_norm"

# (kinds of calls, the family of their changes)
_FAMILIES: tuple[tuple[str, Family], ...] = (
    (_NORMS, layer_changes.norm),
    ("batch_norm", layer_changes.batch_norm),
    ("group_norm", layer_changes.group_norm),
    (_NORMS, layer_changes.each_frame),
    ("layer_norm", layer_changes.layer_norm),
    ("conv conv_transpose", layer_changes.conv),
    ("pad", layer_changes.pad),
    ("avg_pool max_pool", layer_changes.pool),
    ("max_pool", layer_changes.max_pool),
    ("avg_pool", layer_changes.avg_pool),
    ("linear", layer_changes.linear),
    ("matmul", _matmul),
    ("einsum", _einsum),
    ("relu gelu silu leaky_relu elu relu6 tanh sigmoid hardswish hardsigmoid", _pointwise),
    ("relu6 clamp hardtanh", _limited),
    ("mul div", _product),
    ("pow", _power),
    ("add sub rsub", _sum),
    ("cat stack chunk split unbind", parts_changes),
    ("getitem", _item),
    ("reshape flatten unflatten transpose permute t", axes_changes),
    ("where", _where),
    ("masked_fill", _masked_fill),
    ("softmax log_softmax normalize mean sum std var max min amax amin logsumexp norm", _reduced),
    ("embedding", layer_changes.embedding),
    ("repeat_interleave", _repeat_interleave),
    ("repeat tile", _repeat),
    ("lstm", layer_changes.lstm),
    ("cross_entropy mse_loss l1_loss smooth_l1_loss huber_loss", loss_changes),
    ("binary_cross_entropy_with_logits binary_cross_entropy nll_loss kl_div", loss_changes),
    ("interpolate", layer_changes.interpolate),
)
