"""Compare the dropout of both nets, and create masks that replace random dropout in both nets."""

import functools
import itertools
import math
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from resnet_fn.config.hints import few
from resnet_fn.parity.layer_outputs import layout
from resnet_fn.parity.layers.difference import DIFFERS, FITS, difference, norm, relative_error
from resnet_fn.parity.layers.layer import Layer
from resnet_fn.parity.stages import Stage
from resnet_fn.parity.trace import Drop, Dropping, Recording

DROPOUT = "dropout"
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
    for own, other in _pairs(ours, theirs, names):
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


def _pairs(
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


def dropout_stage(ours: Recording, theirs: Recording, names: Mapping[str, str]) -> Stage:
    """Compare the probability, the mask's shape and the scale of each dropout in both nets."""
    if ours.drops is None or theirs.drops is None:
        missing = "one trace does not contain the net's dropout; record that trace again"
        return Stage(DROPOUT, undecided=missing if ours.drops or theirs.drops else "")
    every = (*ours.drops, *theirs.drops)
    idle = [
        Counter(round(one.share, 6) for one in side.drops or () if one.once is None)
        for side in (ours, theirs)
    ]
    stage, by_share, shares = Stage(DROPOUT), [], []
    for own, other in _pairs(ours.dropping, theirs.dropping, names):
        x, y = (one or Drop("", 0.0, True) for one in (own, other))
        (a, b), title = (x.share, y.share), x.title or y.title
        # the side with 0 may drop as much in a function
        if 0 in (a, b) and idle[a > 0][round(a or b, 6)]:
            idle[a > 0][round(a or b, 6)] -= 1
            a = b = a or b
        stage.differences.append(difference(title, a, b, tolerance=1e-6))
        if stage.differences[-1].verdict == DIFFERS:
            keeps = f": nn.Dropout({b:g}) keeps {b:g} in MindSpore; write nn.Dropout(p={b:g})"
            shares.append(
                f"{title}: p={a:g} here, {b:g} in the "
                f"reference{keeps if math.isclose(a, 1 - b) else ''}"
            )
        elif not x.scale or not y.scale:
            by_share.append(title)
        elif math.prod(x.shape) != math.prod(y.shape):
            stage.hints.append(
                f"{title}: drops {_words(x.shape)} here, {_words(y.shape)} in the reference"
            )
        elif not math.isclose(x.scale, y.scale, rel_tol=1e-4):
            words = f"multiplies what it keeps by {x.scale:g} here, {y.scale:g} in the reference"
            stage.hints.append(f"{title}: {words}")
    stage.failed = "; ".join(stage.hints)
    stage.hints = [*shares, *stage.hints]
    stage.note = (
        f"without a mask, only the probability is compared: {few(by_share)}" if by_share else ""
    )
    functions = ours.random_train or theirs.random_train or any(one.once is False for one in every)
    wrong = [item for item in stage.differences if item.verdict == DIFFERS]
    if (
        functions
        and wrong
        and not stage.failed
        and all(0 in (item.ours, item.theirs) for item in wrong)
    ):
        stage.undecided = f"{'; '.join(shares)}; where p=0, a function call may apply this dropout"
    return stage


def _words(shape: tuple[int, ...]) -> str:
    """Describe what a mask of this shape drops, for example "channels (a mask [4, 8, 1, 1])"."""
    kind = "elements" if 1 not in shape[1:] else "samples" if set(shape[1:]) == {1} else "channels"
    return f"{kind} (a mask {list(shape)})"
