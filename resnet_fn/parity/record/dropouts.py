"""Measure where a net applies dropout, with which probability and mask."""

import itertools
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


def drops_of(
    dropped: Sequence[tuple[str, str, float]],
    layers: Sequence[Layer],
    call: Callable[[str, np.ndarray], np.ndarray],
) -> list[Drop]:
    """Return the places where a net applies dropout.

    `dropped` lists the layer, the attribute and the probability of each dropout. `layers` are
    executions of layers in training mode, recorded without dropout. `call(name, x)` runs a layer in
    training mode with random dropout.
    """
    masked: dict[str, Drop] = {}
    inside: tuple[str, ...] = ()  # prefixes of the layers inside a layer that drops by a mask
    for layer in sorted(layers, key=lambda one: len(one.name)):
        outside = [one for one in dropped if not one[0].startswith(inside)]
        shares = [share for name, _, share in outside if name == layer.name]
        if drop := _by_mask(layer, shares, call):
            masked[layer.title] = drop
            inside += (f"{layer.name}.",)
    dropped = [one for one in dropped if not one[0].startswith(inside)]
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


def _by_probability(
    name: str, title: str, once: bool, dropped: Sequence[tuple[str, str, float]]
) -> list[Drop]:
    """Return the dropouts of a layer of which no mask is recognised."""
    prefix = f"{name}." if name else ""
    drops = []
    for own in [share for other, _, share in dropped if other == name]:
        # A block passes its probability on to the layers inside, which are listed themselves.
        alike = {other for other, _, share in dropped if share == own and other != name}
        if once or not any(other.startswith(prefix) for other in alike):
            drops.append(Drop(title, own, once))
    return drops


def _by_mask(
    layer: Layer, shares: Sequence[float], call: Callable[[str, np.ndarray], np.ndarray]
) -> Drop | None:
    """Measure the dropout mask of a layer by running the layer on ones.

    Returns None if no mask is recognised.
    """
    x, y = layer.input, layer.output
    if not shares or x is None or y is None or not np.array_equal(x, y) or x.ndim > len(_ONES):
        return None
    shape = _ONES[: x.ndim]
    for _ in range(_CALLS):
        try:
            output = call(layer.name, np.ones(shape, np.float32))
        except Exception:  # no kernel on this device
            share = shares[0]
            known = layer.class_name in ("Dropout", "DropoutExt") and share < 1
            return Drop(layer.title, share, True, 1 / (1 - share), x.shape) if known else None
        kept = output[output != 0]
        has_zeros = 0 < kept.size < output.size and output.shape == shape
        if has_zeros and np.ptp(kept) <= FITS * kept[0]:
            varies = [bool((output != output.take([0], axis)).any()) for axis in range(x.ndim)]
            mask = tuple(size if vary else 1 for size, vary in zip(x.shape, varies, strict=True))
            count = math.prod(itertools.compress(shape, varies))
            share = _nearest(shares, 1 - kept.size / output.size, count)
            return Drop(layer.title, share, True, float(kept[0]), mask)
    return None


def _nearest(shares: Sequence[float], part: float, count: int) -> float:
    """Return the first probability that `part` zeros of `count` fit, or else `part`."""
    for share in shares:
        error = math.sqrt(share * (1 - share) / count)
        if abs(part - share) <= _SIGMAS * error:
            return share
    return round(part, 2)
