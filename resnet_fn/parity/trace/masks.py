"""Pair the dropouts of both nets, and draw the masks that both get."""

import dataclasses
import functools
import itertools
import math
import zlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from resnet_fn.parity.trace.difference import FITS, norm, relative_error
from resnet_fn.parity.trace.drop import Drop, Dropping
from resnet_fn.parity.trace.layout import layout


def _drawn(drop: Drop, shape: tuple[int, ...]) -> np.ndarray:
    """Return a random mask of ones and zeros, seeded with the title of `drop`."""
    seed = zlib.crc32(drop.title.encode())
    numbers = np.random.default_rng(seed).random(shape)
    kept = numbers >= drop.share
    kept.flat[numbers.argmin()] = False
    kept.flat[numbers.argmax()] = True  # a mask of a single number keeps it
    return kept.astype(np.float32)


class SharedMasks(NamedTuple):
    """The masks that both sides use."""

    calls: dict[str, list[np.ndarray]]  # the port's layers' names → a scaled mask for each call
    left: list[str]  # titles of the reference's dropouts for whose masks the port has no place


def shared_masks(port: Dropping, reference: Dropping, names: Mapping[str, str]) -> SharedMasks:
    """Return the dropout masks of the port's layers.

    Both nets get the same masks, where `names` are the port's layers and the reference's. If two
    paired masks differ in size, the port gets its own mask.
    """
    masks: dict[str, np.ndarray] = {}
    left: list[str] = []
    for port_place, reference_place in _pair_places(port, reference, names):
        if reference_place is None or not takes_mask(reference_place.drop):
            continue
        if port_place is None or not takes_mask(port_place.drop):
            left.append(reference_place.drop.title)
            continue
        drop = port_place.drop
        kept = _kept(port_place, reference_place).reshape(drop.shape)
        masks[drop.title] = kept * np.float32(drop.scale)
    layers = port[1]
    calls: dict[str, list[np.ndarray]] = {}
    for layer in layers:
        if layer.title in masks:
            calls[layer.name] = []
    for layer in layers:
        if layer.name in calls and layer.input is not None:
            mask = masks.get(layer.title, np.float32(1))
            whole = np.broadcast_to(mask, layer.input.shape)
            calls[layer.name].append(whole)
    return SharedMasks(calls, left)


def takes_mask(drop: Drop) -> bool:
    """Return whether a mask can replace a dropout: whether it multiplies its layer's input."""
    return bool(drop.scale) and not drop.is_branch


@dataclasses.dataclass(frozen=True)
class _Place:
    """A dropout that runs, and the input of its layer, which is empty if there is none."""

    drop: Drop
    input: np.ndarray

    @functools.cached_property
    def norm(self) -> float:
        """The norm of the input."""
        return norm(self.input)


_Pairs = list[tuple[_Place | None, _Place | None]]


def _places(side: Dropping) -> list[_Place]:
    drops, layers = side
    inputs = {layer.title: layer.input for layer in layers}
    places = []
    for drop in drops:
        if drop.once is not None:
            x = inputs.get(drop.title)
            if x is None:
                x = np.zeros(0)
            places.append(_Place(drop, x))
    return places


def _kept(port: _Place, reference: _Place) -> np.ndarray:
    """Return the reference's mask of ones and zeros, in the layout of the port's layer."""
    shape = port.drop.shape
    drop = reference.drop
    kept = _drawn(drop, drop.shape)
    if kept.size != math.prod(shape):
        return _drawn(drop, shape)
    if not _have_equal_sizes(port, reference):
        return kept
    move = layout(port.input, reference.input)
    whole = np.broadcast_to(kept, reference.input.shape)
    corner = tuple(map(slice, shape))
    return move(whole)[corner]


def pair_drops(
    port: Dropping, reference: Dropping, names: Mapping[str, str]
) -> list[tuple[Drop | None, Drop | None]]:
    """Pair the port's dropouts with the reference's, preferably those with equal inputs."""
    pairs: list[tuple[Drop | None, Drop | None]] = []
    for port_place, reference_place in _pair_places(port, reference, names):
        port_drop = port_place.drop if port_place else None
        reference_drop = reference_place.drop if reference_place else None
        pairs.append((port_drop, reference_drop))
    return pairs


def _pair_places(port: Dropping, reference: Dropping, names: Mapping[str, str]) -> _Pairs:
    titles: dict[
        str, str
    ] = {}  # of the port's executions → of the reference's, by the layers' names
    for layer in port[1]:
        if layer.name in names:
            title = layer.title
            call = title.removeprefix(layer.name)
            titles[title] = names[layer.name] + call
    port_places = _places(port)
    reference_places = _places(reference)

    def closeness(pair: tuple[int, int]) -> tuple[bool, ...]:
        i, j = pair
        equal = _have_equal_inputs(port_places[i], reference_places[j])
        port_drop = port_places[i].drop
        reference_drop = reference_places[j].drop
        named = titles.get(port_drop.title) == reference_drop.title
        share = port_drop.share == reference_drop.share
        masked = takes_mask(port_drop) == takes_mask(reference_drop)
        return equal, named, share, masked

    partners: dict[int, int] = {}
    port_indices = range(len(port_places))
    every_pair = itertools.product(port_indices, range(len(reference_places)))
    for i, j in sorted(every_pair, key=closeness, reverse=True):
        if i not in partners and j not in partners.values():
            partners[i] = j
    pairs: _Pairs = []
    for i, port_place in enumerate(port_places):
        partner = reference_places[partners[i]] if i in partners else None
        pairs.append((port_place, partner))
    for j, reference_place in enumerate(reference_places):
        if j not in partners.values():
            pairs.append((None, reference_place))
    return pairs


def _have_equal_sizes(port: _Place, reference: _Place) -> bool:
    return 0 < port.input.size == reference.input.size


def _have_equal_inputs(port: _Place, reference: _Place) -> bool:
    """Return whether two dropouts with masks get the same numbers."""
    if not takes_mask(port.drop) or not takes_mask(reference.drop):
        return False
    if not _have_equal_sizes(port, reference):
        return False
    if not math.isclose(port.norm, reference.norm, rel_tol=FITS):
        return False
    move = layout(port.input, reference.input)
    moved = move(reference.input)
    return relative_error(port.input, moved) < FITS
