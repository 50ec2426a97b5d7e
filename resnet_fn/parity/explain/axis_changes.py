"""Change how a torch call orders axes, and how it cuts or joins parts."""
# ruff: noqa: B023 (each function is called before its loop continues)

import itertools
from collections.abc import Iterator
from typing import Any

import torch

from resnet_fn.parity.explain.calls import Call, Changes
from resnet_fn.parity.explain.sequences import as_tuple, exchanged, pairs

# The beginning of descriptions of changes to any other order of axes. There are many, so they are
# tried late.
PERMUTED = "permuted by "

_MOST_AXES = 5  # 120 orders


def parts_changes(c: Call) -> Changes:
    """Yield other orders of the parts that a call joins or cuts."""
    x = c.x
    dim = c.bound.get("dim", 0)
    if c.name in ("cat", "stack"):
        function = getattr(torch, c.name)
        yield "the parts in the other order", lambda: function(list(x)[::-1], dim)
        return
    count = len(c.out)
    for i, j in pairs(count):
        title = f"parts {i} and {j} exchanged"
        yield title, lambda: tuple(exchanged(c.out, i, j))
    size = x.shape[dim]
    if c.name == "unbind" or size % count or count < 2:
        return
    width = size // count
    for groups in range(2, width + 1):
        if width % groups == 0:  # as in (heads, 3, width of a head) for (3, heads, width of a head)
            apart = f"{groups} groups of {count} parts" if groups < width else "every entry in turn"
            title = f"cut as {apart} for {count} parts in a row"
            cut = x.unflatten(dim, (groups, count, width // groups)).movedim(dim % x.ndim + 1, 0)
            yield title, lambda: tuple(one.flatten(dim % x.ndim, dim % x.ndim + 1) for one in cut)


def axes_changes(c: Call) -> Changes:
    """Yield other shapes and orders of axes."""
    x = c.x
    shape = list(c.out.shape)
    if c.kind in ("reshape", "flatten", "unflatten"):
        for i, j in pairs(x.ndim):
            words = f"axes {i} and {j} exchanged before it is reshaped"
            yield words, lambda: x.transpose(i, j).reshape(shape)
        for i, j in pairs(len(shape)):
            other = exchanged(shape, i, j)
            title = f"reshaped to {other} for {shape}"
            yield title, lambda: x.reshape(other)
            words = f"reshaped to {other}, then axes {i} and {j} exchanged"
            yield words, lambda: x.reshape(other).transpose(i, j)
        for order in _orders(x):
            title = f"{PERMUTED}{order} before it is reshaped"
            yield title, lambda: x.permute(order).reshape(shape)
        return
    yield "reshaped for transposed", lambda: x.reshape(shape)
    yield "not transposed", lambda: x
    own = _own_order(c)
    for order in _orders(x):
        if order != own:
            yield f"{PERMUTED}{order} for {own}", lambda: x.permute(order)


def _orders(x: torch.Tensor) -> Iterator[tuple[int, ...]]:
    """Yield the orders of axes, those that exchange two axes first."""
    if x.ndim <= _MOST_AXES:
        given = tuple(range(x.ndim))
        orders = itertools.permutations(given)
        moved = {order: sum(a != b for a, b in zip(order, given, strict=True)) for order in orders}
        yield from sorted(moved, key=lambda order: moved[order])


def _own_order(c: Call) -> tuple[int, ...]:
    """Return the order of axes in a call's result."""
    count = c.x.ndim
    if c.name == "permute":
        given: Any = c.bound.get("dims", c.args[1:])
        order = as_tuple(given[0]) if len(given) == 1 else given
        return tuple(axis % count for axis in order)
    axes = (-2, -1) if c.name == "t" else c.args[1:3]
    i, j = (axis % count for axis in axes)
    return tuple(exchanged(range(count), i, j))
