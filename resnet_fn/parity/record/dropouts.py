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
        shares = [
            share
            for name, _, share in dropped
            if name == layer.name and not name.startswith(inside)
        ]
        if drop := _by_mask(layer, shares, call):
            masked[layer.title] = drop
            inside += (f"{layer.name}.",)
    dropped = [one for one in dropped if not one[0].startswith(inside)]
    drops: list[Drop] = []
    ran = {"", *(one.name for one in layers)}
    runs = [
        (one.name, one.title, one.kind in _DROPPING)
        for one in layers
        if one.settings.get("num_layers") != 1
    ]
    for name, title, once in [*runs, ("", "the net", False)]:
        drops += [masked[title]] if title in masked else []
        for share in [
            share for other, _, share in dropped if other == name and title not in masked
        ]:
            # A block passes its probability on to the layers inside, which are listed themselves.
            alike = {other for other, _, inner in dropped if inner == share and other != name}
            if once or not any(other.startswith(f"{name}." if name else "") for other in alike):
                drops.append(Drop(title, share, once))
    # A dropout layer that did not run may have passed its probability to a function.
    return drops + [
        Drop(name, share, None)
        for name, attribute, share in dropped
        if attribute == "p" and name not in ran
    ]


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
            known = layer.class_name in ("Dropout", "DropoutExt") and shares[0] < 1
            return (
                Drop(layer.title, shares[0], True, 1 / (1 - shares[0]), x.shape) if known else None
            )
        kept = output[output != 0]
        if 0 < kept.size < output.size and output.shape == shape and np.ptp(kept) <= FITS * kept[0]:
            varies = [bool((output != output.take([0], axis)).any()) for axis in range(x.ndim)]
            part, count = 1 - kept.size / output.size, math.prod(itertools.compress(shape, varies))
            near = [
                one
                for one in shares
                if abs(part - one) <= _SIGMAS * math.sqrt(one * (1 - one) / count)
            ]
            mask = tuple(size if vary else 1 for size, vary in zip(x.shape, varies, strict=True))
            return Drop(layer.title, [*near, round(part, 2)][0], True, float(kept[0]), mask)
    return None
