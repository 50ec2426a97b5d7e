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
        yield (
            "the parts in the other order",
            lambda: function(list(x)[::-1], dim),
        )
        return
    count = len(c.out)
    for i, j in pairs(count):
        yield (
            f"parts {i} and {j} exchanged",
            lambda: tuple(exchanged(c.out, i, j)),
        )
    size = x.shape[dim]
    if c.name != "unbind" and size % count == 0:
        yield from _interleaved(x, dim % x.ndim, count)


def _interleaved(x: torch.Tensor, dim: int, count: int) -> Changes:
    """Yield other ways to cut an axis into parts of equal size.

    An example is (heads, 3, width of a head) for (3, heads, width of a head).
    """
    width = x.shape[dim] // count
    if count < 2:
        return
    for groups in range(2, width + 1):
        if width % groups:
            continue
        apart = f"{groups} groups of {count} parts"
        if groups == width:
            apart = "every entry in turn"
        title = f"cut as {apart} for {count} parts in a row"
        sizes = groups, count, width // groups

        def cut(sizes: tuple[int, ...] = sizes) -> tuple[torch.Tensor, ...]:
            parts = x.unflatten(dim, sizes).unbind(dim + 1)
            return tuple(part.flatten(dim, dim + 1) for part in parts)

        yield title, cut


def axes_changes(c: Call) -> Changes:
    """Yield other shapes and orders of axes."""
    x = c.x
    if c.kind in ("reshape", "flatten", "unflatten"):
        yield from _reshaped(x, list(c.out.shape))
        return
    yield (
        "reshaped for transposed",
        lambda: x.reshape(c.out.shape),
    )
    yield (
        "not transposed",
        lambda: x,
    )
    own = _own_order(c)
    for i, j in pairs(x.ndim):
        order = tuple(exchanged(own, i, j))
        yield (
            f"axes {i} and {j} exchanged, {PERMUTED}{order} for {own}",
            lambda: x.permute(order),
        )
    for order in _orders(x):
        if sum(a != b for a, b in zip(order, own, strict=True)) > 2:
            yield (
                f"{PERMUTED}{order} for {own}",
                lambda: x.permute(order),
            )


def _reshaped(x: torch.Tensor, shape: list[int]) -> Changes:
    """Yield other ways to reshape an array, or to order axes before or after it."""
    for i, j in pairs(x.ndim):
        yield (
            f"axes {i} and {j} exchanged before it is reshaped",
            lambda: x.transpose(i, j).reshape(shape),
        )
    for i, j in pairs(len(shape)):
        other = exchanged(shape, i, j)
        yield (
            f"reshaped to {other} for {shape}",
            lambda: x.reshape(other),
        )
        yield (
            f"reshaped to {other}, then axes {i} and {j} exchanged",
            lambda: x.reshape(other).transpose(i, j),
        )
    for order in _orders(x):
        yield (
            f"{PERMUTED}{order} before it is reshaped",
            lambda: x.permute(order).reshape(shape),
        )


def _orders(x: torch.Tensor) -> Iterator[tuple[int, ...]]:
    """Yield the orders of axes, those that exchange two axes first."""
    if x.ndim <= _MOST_AXES:
        orders = itertools.permutations(range(x.ndim))
        yield from sorted(orders, key=_moved)


def _moved(order: tuple[int, ...]) -> int:
    """Return the number of axes that an order moves."""
    return sum(index != axis for index, axis in enumerate(order))


def _own_order(c: Call) -> tuple[int, ...]:
    """Return the order of axes in a call's result."""
    count = c.x.ndim
    if c.name == "permute":
        dims: Any = c.bound.get("dims", c.args[1:])
        if len(dims) == 1:
            dims = as_tuple(dims[0])
        return tuple(axis % count for axis in dims)
    axes = (-2, -1) if c.name == "t" else c.args[1:3]
    i, j = (axis % count for axis in axes)
    return tuple(exchanged(range(count), i, j))
