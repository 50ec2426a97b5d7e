"""Small functions of a call's arguments, which several kinds of changes use."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from resnet_fn.parity.explain.calls import Call
from resnet_fn.parity.record.torch_decisions import is_float


def keeps_shape(c: Call) -> bool:
    """Return whether a call's result has the shape of its first argument."""
    if not (is_float(c.x) and is_float(c.out)):
        return False
    return c.x.shape == c.out.shape


def is_number(value: Any) -> bool:
    """Return whether an argument is one number, perhaps in a tensor."""
    return not isinstance(value, torch.Tensor) or value.ndim == 0


def as_tuple(value: Any, n: int = 1) -> tuple[Any, ...]:
    """Return a tuple of a list's values, or of n times the same value."""
    if isinstance(value, tuple | list):
        return tuple(value)
    return (value,) * n


def pairs(count: int) -> Iterator[tuple[int, int]]:
    """Return all pairs of different numbers below `count`."""
    return itertools.combinations(range(count), 2)


def exchanged(values: Sequence[Any], i: int, j: int) -> list[Any]:
    """Return the values as a list in which those at i and j have changed places."""
    others = list(values)
    others[i] = values[j]
    others[j] = values[i]
    return others
