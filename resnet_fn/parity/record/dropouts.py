"""Measure where a net applies dropout, with which probability and mask."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from resnet_fn.parity.trace.data import Drop
from resnet_fn.parity.trace.difference import FITS
from resnet_fn.parity.trace.layer import Layer

# kinds of layers that drop once in each call
_DROPPING = ("dropout", "drop path", "attention", "lstm", "gru", "rnn")

# shape of the ones on which a mask is measured, cut to the input's number of axes
_ONES = (2048, 3, 2, 2, 2)

_CALLS = 4  # how often a layer runs, at most, until its mask has zeros and other numbers

_SIGMAS = 6.0  # how many standard errors a measured probability may be off


Dropped = Sequence[tuple[str, str, float]]  # (layer, attribute, probability) of each dropout

Call = Callable[[str, np.ndarray], np.ndarray]  # runs a layer


def drops_of(dropped: Dropped, layers: Sequence[Layer], call: Call) -> list[Drop]:
    """Return the places where a net applies dropout.

    `dropped` lists the layer, the attribute and the probability of each dropout. `layers` are
    executions of layers in training mode, recorded without dropout. `call(name, x)` runs a layer in
    training mode with random dropout.
    """
    masked: dict[str, Drop] = {}
    for layer in sorted(layers, key=lambda one: len(one.name)):
        shares = [share for name, _, share in dropped if name == layer.name]
        if drop := _by_mask(layer, shares, call):
            masked[layer.title] = drop
            inside = f"{layer.name}."
            given = dropped
            dropped = [one for one in given if not one[0].startswith(inside)]
    drops: list[Drop] = []
    for layer in layers:
        if layer.settings.get("num_layers") == 1:
            continue
        if layer.title in masked:
            drops.append(masked[layer.title])
        else:
            once = layer.kind in _DROPPING
            drops += _by_probability(layer.name, layer.title, once, dropped)
    drops += _by_probability("", "the net", False, dropped)
    # A dropout layer that did not run may have passed its probability to a function.
    ran = {"", *(one.name for one in layers)}
    for name, attribute, share in dropped:
        if attribute == "p" and name not in ran:
            drops.append(Drop(name, share, None))
    return drops


def _by_probability(name: str, title: str, once: bool, dropped: Dropped) -> list[Drop]:
    """Return the dropouts of a layer of which no mask is recognised."""
    prefix = f"{name}." if name else ""
    shares = [share for other, _, share in dropped if other == name]
    drops = []
    for own in shares:
        # A block passes its probability on to the layers inside, which are listed themselves.
        others = [one for one in dropped if one[0] != name]
        alike = [other for other, _, share in others if share == own]
        is_passed_on = any(other.startswith(prefix) for other in alike)
        if once or not is_passed_on:
            drops.append(Drop(title, own, once))
    return drops


def _by_mask(layer: Layer, shares: Sequence[float], call: Call) -> Drop | None:
    """Measure the dropout mask of a layer by running the layer on ones.

    Returns None if no mask is recognised.
    """
    x = layer.input
    y = layer.output
    if not shares or x is None or y is None:
        return None
    if not np.array_equal(x, y):
        return None
    if x.ndim > len(_ONES):
        return None
    title = layer.title
    shape = _ONES[: x.ndim]
    ones = np.ones(shape, np.float32)
    for _ in range(_CALLS):
        try:
            output = call(layer.name, ones.copy())
        except Exception:  # no kernel on this device
            share = shares[0]
            if layer.class_name in ("Dropout", "DropoutExt") and share < 1:
                scale = 1 / (1 - share)
                return Drop(title, share, True, scale, x.shape)
            return None
        kept = output[output != 0]
        has_zeros = 0 < kept.size < output.size
        if not has_zeros or output.shape != shape:
            continue
        if np.ptp(kept) <= FITS * kept[0]:
            count = 1  # of independent numbers
            mask = []
            for axis, size in enumerate(x.shape):
                first = output.take([0], axis)
                varies = bool((output != first).any())
                mask.append(size if varies else 1)
                count *= shape[axis] if varies else 1
            dropped = 1 - kept.size / output.size
            share = _nearest(shares, dropped, count)
            scale = float(kept[0])
            return Drop(title, share, True, scale, tuple(mask))
    return None


def _nearest(shares: Sequence[float], part: float, count: int) -> float:
    """Return the first probability that `part` zeros of `count` fit, or else `part`."""
    for share in shares:
        variance = share * (1 - share) / count
        error = math.sqrt(variance)
        if abs(part - share) <= _SIGMAS * error:
            return share
    return round(part, 2)
