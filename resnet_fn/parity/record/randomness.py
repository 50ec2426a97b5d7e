"""Find layers that draw random numbers although dropout is 0."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from resnet_fn.parity.trace.difference import relative_error
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.tree import Arrays

# two calls with a larger relative error are random; below that, kernels may not repeat exactly
_RANDOM = 1e-3

_DRAWN = 1e-6  # the same limit if the net draws random numbers

# a net that draws random numbers is called so often: in few calls, drop-path may drop nothing
_CALLS = 8


def is_random(call: Callable[[], Arrays], drawn: Callable[[], Any] = tuple) -> bool:
    """Return whether repeated calls give different arrays.

    `drawn` returns the state of the random generator.
    """
    before = drawn()
    first = call()
    if np.array_equal(before, drawn()):
        return is_apart(first, call(), _RANDOM)
    return any(is_apart(first, call(), _DRAWN) for _ in range(_CALLS))


def is_apart(first: Arrays, others: Arrays, limit: float = _DRAWN) -> bool:
    """Return whether any two arrays of the same name have a relative error above `limit`."""
    return any(relative_error(first[name], value) > limit for name, value in others.items())


def cut_random(layers: list[Layer], again: Sequence[Layer]) -> str:
    """Delete the executions from the first random output on, or all if none is found.

    Return words for the source.
    """
    others = {layer.title: layer for layer in again}

    def repeats(layer: Layer, what: str) -> bool:
        other = others.get(layer.title)
        if other is None:
            return False
        value = getattr(layer, what)
        if value is None:
            return True
        error = relative_error(value, getattr(other, what))
        return not error > _DRAWN

    changed = [index for index, layer in enumerate(layers) if not repeats(layer, "output")]
    drawing = [layers[index] for index in changed if repeats(layers[index], "input")]
    del layers[min(changed, default=0) :]  # if no output is random, the source is unknown
    if not drawing:
        return "code between its layers, or the loss,"
    source = drawing[0]
    return f"{source.title} ({source.class_name})"
