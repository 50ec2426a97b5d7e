"""Dropout by one mask: where both nets drop, how much and what, and the masks by which both multiply instead.

A layer whose output is its input while its share is 0 drops by a mask. What the mask is like is measured on ones, with
its share, so that a class of the user's own is read as well as a framework's.
"""

import functools
import math
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from resnet_fn.config.hints import few
from resnet_fn.parity.layer_outputs import layout
from resnet_fn.parity.layers.difference import DIFFERS, difference, norm, relative_error
from resnet_fn.parity.layers.layer import Layer
from resnet_fn.parity.origins import FITS
from resnet_fn.parity.stages import Stage
from resnet_fn.parity.trace import Arrays, Drop, Recording

DROPOUT = "dropout"
_DROPPING = ("dropout", "drop path", "attention", "lstm", "gru", "rnn")  # layers that drop once in each call
_ONES = (2048, 3, 2, 2, 2)  # the shape on which a mask is measured, as many axes as the input has
_CALLS = 4  # until some are dropped and some are kept
_SIGMAS = 6.0  # of sampling error of a measured share

Pairs = list[tuple[Drop | None, Drop | None]]


def drops_of(
    dropped: Sequence[tuple[str, str, float]],
    layers: Sequence[Layer],
    call: Callable[[str, np.ndarray], np.ndarray],
) -> list[Drop]:
    """Where a net drops, in execution order.

    A share that a block has is left out if a layer inside drops as much: it was handed to that layer. A dropout layer
    that did not run may have given its share to a function (`scaled_dot_product_attention(…, dropout_p=drop.p)`).

    Args:
        dropped: (layer, attribute, share), set to 0 by `without_dropout`.
        layers: the executions in training mode, without dropout.
        call: (layer, input) → what the layer returns in training mode, with its dropout.
    """
    shares: dict[str, list[float]] = {}
    for name, _, share in dropped:
        shares.setdefault(name, []).append(share)

    @functools.cache
    def measured(name: str, axes: int) -> tuple[float, float, tuple[int, ...]] | None:
        return _measured(functools.partial(call, name), axes, shares[name])

    masked: dict[str, Drop] = {}
    inside: tuple[str, ...] = ()  # what is in a layer that drops by a mask: its own dropout
    for layer in sorted(layers, key=lambda one: len(one.name)):
        given = layer.input
        if given is None or layer.name not in shares or layer.name.startswith(inside):
            continue
        if np.array_equal(given, layer.output) and (found := measured(layer.name, given.ndim)):
            shape = tuple(size if axis in found[2] else 1 for axis, size in enumerate(given.shape))
            masked[layer.title] = Drop(layer.title, found[0], True, found[1], shape)
            inside += (f"{layer.name}.",)
    drops: list[Drop] = []
    ran = {"", *(one.name for one in layers)}
    runs = [(one.name, one.title, one.kind in _DROPPING) for one in layers if one.settings.get("num_layers") != 1]
    for name, title, once in [*runs, ("", "the net", False)]:
        if title in masked:
            drops.append(masked[title])
            continue
        for share in shares.get(name, ()) if not name.startswith(inside) else ():
            alike = {other for other, _, inner in dropped if inner == share and other != name}
            if once or not any(other.startswith(f"{name}." if name else "") for other in alike):
                drops.append(Drop(title, share, once))
    idle = [(name, share) for name, attribute, share in dropped if attribute == "p" and name not in ran]
    return drops + [Drop(name, share, None) for name, share in idle if not name.startswith(inside)]


def _measured(
    call: Callable[[np.ndarray], np.ndarray], axes: int, shares: Sequence[float]
) -> tuple[float, float, tuple[int, ...]] | None:
    """What a layer does to ones: the share that it drops, the factor of what it keeps, the axes along which both vary.

    None if that is no mask, or the layer fails (on a device without its kernel).
    """
    if not 0 < axes <= len(_ONES):
        return None
    for _ in range(_CALLS):
        try:
            output = call(np.ones(_ONES[:axes], np.float32))
        except Exception:
            return None
        kept = output[output != 0]
        if 0 < kept.size < output.size:
            break
    else:
        return None
    if output.shape != _ONES[:axes] or np.ptp(kept) > FITS * kept[0]:
        return None
    varying = tuple(axis for axis in range(axes) if (output != output.take([0], axis)).any())
    count, part = math.prod(_ONES[axis] for axis in varying), 1 - kept.size / output.size
    given = [one for one in shares if abs(part - one) <= _SIGMAS * math.sqrt(one * (1 - one) / count)]
    return (given or [round(part, 2)])[0], float(kept[0]), varying


def _drawn(drop: Drop, shape: tuple[int, ...]) -> np.ndarray:
    """Which cells of a mask are kept, 1 or 0: the same numbers for the same execution. One is kept, one is dropped."""
    numbers = np.random.default_rng(zlib.crc32(drop.title.encode())).random(shape)
    kept = numbers >= drop.share
    kept.flat[numbers.argmax()] = True
    if numbers.size > 1:
        kept.flat[numbers.argmin()] = False
    return kept.astype(np.float32)


def own_masks(drops: Sequence[Drop], layers: Sequence[Layer]) -> Arrays:
    """The masks of a net that is compared with no other yet, by execution; `layers` as in `drops_of`."""
    return {drop.title: _drawn(drop, drop.shape) * np.float32(drop.scale) for drop in drops if drop.scale}


def masks_like(theirs: Recording, names: Mapping[str, str], drops: Sequence[Drop], layers: Sequence[Layer]) -> Arrays:
    """The reference's masks in our axes, by our execution, each with our own factor.

    There are none if one of the reference's has no counterpart that drops by a mask: a fused attention has not.
    `names` has the reference's layer for each of ours; where one drops otherwise, its mask is another.
    """
    masks: Arrays = {}
    inputs = [{one.title: one.input for one in side} for side in (layers, theirs.layers["train"])]
    for own, other in _pairs((drops, layers), (theirs.drops or (), theirs.layers["train"]), names):
        if other is None or not other.scale:
            continue
        if own is None or not own.scale:
            return {}
        cells = _cells(own, other, inputs[0].get(own.title), inputs[1].get(other.title))
        kept = _drawn(other, own.shape) if cells is None else _drawn(other, other.shape).ravel()[cells]
        masks[own.title] = kept * np.float32(own.scale)
    return masks


def by_layer(masks: Mapping[str, np.ndarray], layers: Sequence[Layer]) -> dict[str, list[np.ndarray]]:
    """The masks of each layer's calls, of their inputs' shapes; ones for a call that has none."""
    found: dict[str, list[np.ndarray]] = {one.name: [] for one in layers if one.title in masks}
    for layer in layers:
        if layer.name in found and layer.input is not None:
            found[layer.name].append(np.broadcast_to(masks.get(layer.title, np.float32(1)), layer.input.shape))
    return found


def _cells(own: Drop, other: Drop, x: np.ndarray | None, y: np.ndarray | None) -> np.ndarray | None:
    """Which cell of the reference's mask each of ours is, by the layers' inputs; None if they drop something else."""
    cells = np.arange(math.prod(other.shape)).reshape(other.shape)
    if x is not None and y is not None and x.size == y.size:
        cells = layout(x, y)(np.broadcast_to(cells, y.shape))
    if cells.ndim != len(own.shape):
        return None
    ours = cells[tuple(map(slice, own.shape))]
    alike = ours.shape == own.shape and ours.size == math.prod(other.shape) and (ours == cells).all()
    return ours if alike else None


Side = tuple[Sequence[Drop], Sequence[Layer]]


def _pairs(ours: Side, theirs: Side, names: Mapping[str, str]) -> Pairs:
    """The reference's drop for each of ours: that of the same input, of the paired layer, of the same share, or any."""
    a, b = ({one.title: one.input for one in layers if one.input is not None} for _, layers in (ours, theirs))
    size = functools.cache(lambda side, title: norm((a, b)[side][title]))
    titles = {one.title: names[one.name] + one.title[len(one.name) :] for one in ours[1] if one.name in names}

    def named(own: Drop, other: Drop) -> bool:
        return titles.get(own.title) == other.title

    def same_input(own: Drop, other: Drop) -> bool:
        x, y = a.get(own.title), b.get(other.title)
        if x is None or y is None or x.size != y.size or not own.scale or not other.scale:
            return False
        near = math.isclose(size(0, own.title), size(1, other.title), rel_tol=FITS)
        return near and relative_error(x, layout(x, y)(y)) < FITS

    rules: list[Callable[[Drop, Drop], bool]] = [
        lambda own, other: named(own, other) and same_input(own, other),
        same_input,
        named,
        lambda own, other: own.share == other.share and (own.scale > 0) == (other.scale > 0),
        lambda own, other: own.share == other.share,
        lambda own, other: True,
    ]
    left = [drop for drop in theirs[0] if drop.once is not None]
    paired: dict[Drop, Drop] = {}
    mine = [drop for drop in ours[0] if drop.once is not None]
    for rule in rules:
        for own in [drop for drop in mine if drop not in paired]:
            if other := next((one for one in left if rule(own, one)), None):
                paired[own] = other
                left.remove(other)
    return [*((own, paired.get(own)) for own in mine), *((None, other) for other in left)]


def dropout_stage(ours: Recording, theirs: Recording, names: Mapping[str, str]) -> Stage:
    """How much both nets drop, what, and by which factor; `names`: the reference's layer for each of ours."""
    if ours.drops is None or theirs.drops is None:
        old = "a trace of an earlier version has no record of its dropout; record it again"
        return Stage(DROPOUT, undecided=old if ours.drops or theirs.drops else "")
    sides = [(side.drops or (), side.layers["train"]) for side in (ours, theirs)]
    inputs = [{one.title: one.input for one in layers} for _, layers in sides]
    idle = [Counter(round(drop.share, 6) for drop in drops if drop.once is None) for drops, _ in sides]
    stage, wrong, by_share = Stage(DROPOUT), [], []
    for own, other in _pairs(sides[0], sides[1], names):
        title = (own or other or Drop("", 0, True)).title
        x, y = own.share if own else 0.0, other.share if other else 0.0
        if 0 in (x, y) and idle[x > 0][round(x or y, 6)]:  # a layer that did not run may be a function's there
            idle[x > 0][round(x or y, 6)] -= 1
            x = y = x or y
        item = difference(title, x, y, tolerance=1e-6)
        stage.differences.append(item)
        if item.verdict == DIFFERS:
            keeps = f": nn.Dropout({y:g}) keeps {y:g} in MindSpore; write nn.Dropout(p={y:g})"
            stage.hints.append(f"{title}: p={x:g} here, {y:g} in the reference{keeps * math.isclose(x, 1 - y)}")
        elif not (own and other and own.scale and other.scale):
            by_share.append(title)
        elif _cells(own, other, inputs[0].get(title), inputs[1].get(other.title)) is None:
            wrong.append(f"{title}: drops {_words(own.shape)} here, {_words(other.shape)} in the reference")
        elif not math.isclose(own.scale, other.scale, rel_tol=1e-4):
            wrong.append(f"{title}: multiplies what it keeps by {own.scale:g} here, {other.scale:g} in the reference")
    functions = ours.random_train or theirs.random_train
    functions = functions or not all(drop.once for drops, _ in sides for drop in drops if drop.once is not None)
    shares = [item for item in stage.differences if item.verdict == DIFFERS]
    if functions and shares and not wrong and all(0 in (item.ours, item.theirs) for item in shares):
        stage.undecided = f"{'; '.join(stage.hints)}; but a function may drop as much there"
    stage.failed, stage.hints = "; ".join(wrong), [*stage.hints, *wrong]
    stage.note = f"by the share alone, without a mask: {few(by_share)}" if by_share else ""
    return stage


def _words(shape: tuple[int, ...]) -> str:
    """ "elements", "channels" or "samples", and the mask's shape."""
    kind = "elements" if 1 not in shape[1:] else "samples" if set(shape[1:]) == {1} else "channels"
    return f"{kind} (a mask {list(shape)})"
