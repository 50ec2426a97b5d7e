"""Pair the dropouts of both nets, and draw the masks that both get."""

import functools
import itertools
import math
import zlib
from collections.abc import Mapping

import numpy as np

from resnet_fn.parity.trace.data import Drop, Dropping
from resnet_fn.parity.trace.difference import FITS, norm, relative_error
from resnet_fn.parity.trace.layout import layout


def _drawn(drop: Drop, shape: tuple[int, ...]) -> np.ndarray:
    """Return a random mask of ones and zeros, seeded with the title of `drop`."""
    numbers = np.random.default_rng(zlib.crc32(drop.title.encode())).random(shape)
    kept = numbers >= drop.share
    kept.flat[numbers.argmin()] = False
    kept.flat[numbers.argmax()] = True  # a mask of a single number keeps it
    return kept.astype(np.float32)


def shared_masks(
    ours: Dropping, theirs: Dropping | None = None, names: Mapping[str, str] | None = None
) -> dict[str, list[np.ndarray]]:
    """Return a dict from our layers' names to lists of scaled dropout masks, with one mask for each
    call.

    If `theirs` is given, both nets get the same masks. If two paired masks differ in size, our net
    gets its own mask. The result is empty if a mask of the reference has no counterpart in our net.
    """
    theirs, names = (
        theirs or ours,
        {one.name: one.name for one in ours[1]} if names is None else names,
    )
    a, b = ({one.title: one.input for one in layers} for _, layers in (ours, theirs))
    masks: dict[str, np.ndarray] = {}
    for own, other in pair_drops(ours, theirs, names):
        if other and other.scale:
            if own is None or not own.scale:
                return {}
            x, y, kept = a[own.title], b.get(other.title), _drawn(other, other.shape)
            if kept.size != math.prod(own.shape):
                kept = _drawn(other, own.shape)
            elif x is not None and y is not None and x.size == y.size:
                kept = layout(x, y)(np.broadcast_to(kept, y.shape))[tuple(map(slice, own.shape))]
            masks[own.title] = kept.reshape(own.shape) * np.float32(own.scale)
    calls: dict[str, list[np.ndarray]] = {one.name: [] for one in ours[1] if one.title in masks}
    for layer in ours[1]:
        if layer.name in calls and layer.input is not None:
            calls[layer.name].append(
                np.broadcast_to(masks.get(layer.title, np.float32(1)), layer.input.shape)
            )
    return calls


def pair_drops(
    ours: Dropping, theirs: Dropping, names: Mapping[str, str]
) -> list[tuple[Drop | None, Drop | None]]:
    """Pair our dropouts with the reference's, preferably those with equal inputs."""
    a, b = (
        {one.title: one.input for one in layers if one.input is not None}
        for _, layers in (ours, theirs)
    )
    size = functools.cache(lambda side, title: norm((a, b)[side][title]))
    titles = {
        one.title: names[one.name] + one.title[len(one.name) :]
        for one in ours[1]
        if one.name in names
    }

    mine, others = (
        [drop for drop in drops if drop.once is not None] for drops, _ in (ours, theirs)
    )

    def closeness(places: tuple[int, int]) -> tuple[bool, ...]:
        own, other, same = mine[places[0]], others[places[1]], False
        x, y = a.get(own.title), b.get(other.title)
        if x is not None and y is not None and x.size == y.size and own.scale and other.scale:
            same = math.isclose(size(0, own.title), size(1, other.title), rel_tol=FITS)
            same = same and relative_error(x, layout(x, y)(y)) < FITS
        named, share = titles.get(own.title) == other.title, own.share == other.share
        return same, named, share, (own.scale > 0) == (other.scale > 0)

    paired: dict[int, int] = {}
    for i, j in sorted(
        itertools.product(range(len(mine)), range(len(others))), key=closeness, reverse=True
    ):
        if i not in paired and j not in paired.values():
            paired[i] = j
    left = [(None, other) for j, other in enumerate(others) if j not in paired.values()]
    return [
        *((own, others[paired[i]] if i in paired else None) for i, own in enumerate(mine)),
        *left,
    ]
