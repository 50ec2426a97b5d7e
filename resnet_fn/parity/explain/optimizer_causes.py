"""Find out why the optimizers differ, by computing updates in the ways in which ports are often
wrong.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from resnet_fn.parity.pair.like import paired
from resnet_fn.parity.pair.name_map import NameMap
from resnet_fn.parity.trace.data import DECAY, RATE, Trace
from resnet_fn.parity.trace.difference import FITS
from resnet_fn.parity.trace.made_up import KEPT, RATES, SCALES, made_up
from resnet_fn.parity.trace.tree import Arrays

# How SGD, RMSProp or Adam computes an update. Settings are columns with one number for each
# parameter.
Way = dict[str, Any]

Words = str | tuple[np.ndarray, ...]  # the text of a cause, or columns of numbers that are printed

PLACE = "place of eps"

CORRECTED = "bias correction"

BEGINS = "the first mean square"

_SOME = 32  # how many numbers of a parameter are compared, beginning with the largest difference

_ROOT = "added to the root √v̂"

_INSIDE = "inside the root, √(v̂ + eps)"

_BEFORE = "added to √v before its bias correction"

_DECOUPLING = "decoupled weight decay"

_COUPLED = "coupled (added to the gradient, as Adam)"

_DECOUPLED = "decoupled (taken from the weight, as AdamW)"

_SWITCHES = {"amsgrad": "amsgrad", "nesterov": "Nesterov momentum", "centered": "centered"}

# For each setting, the numbers that are tried instead of the reference's number.
_KEPT = (0.0, 0.5, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99)

_SQUARES = (0.9, 0.95, 0.98, 0.99, 0.999, 0.9999)

_USUAL: dict[str, Sequence[float]] = {
    "β1": _KEPT,
    "momentum": _KEPT,
    "β2": _SQUARES,
    "α": _SQUARES,
    "eps": (1e-12, 1e-10, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1),
    DECAY: (0.0, 1e-5, 1e-4, 5e-4, 1e-3, 1e-2, 0.05, 0.1),
}


def _changes(
    way: Way, weights: np.ndarray, directions: np.ndarray, shares: np.ndarray
) -> Iterator[np.ndarray]:
    """Compute updates as `way` describes. After each update that `KEPT` names, yield the total
    change of `weights`.

    Each array has a row for each parameter. `directions` has the gradients of update 1. `shares`
    multiplies the rate.
    """
    w = weights.copy()
    m = np.zeros_like(weights)
    v = np.full_like(weights, way[BEGINS])
    mean = np.zeros_like(weights)
    highest = np.zeros_like(weights)
    of_m = way.get("β1")
    of_v = way.get("β2", way.get("α"))
    momentum = way.get("momentum", 0.0)
    decay = way[DECAY]
    decoupled = way[_DECOUPLING]
    for t, (scale, base) in enumerate(zip(SCALES, RATES, strict=True), 1):
        rate = base * shares
        g = scale * directions
        g = g + (1 - decoupled) * decay * w
        w = w - rate * decoupled * decay * w
        root: Any = 1.0
        if of_v is not None:
            v = of_v * v + (1 - of_v) * g * g
            mean = of_v * mean + (1 - of_v) * g
            highest = np.maximum(highest, v)
            correction = 1 - way[CORRECTED] * of_v**t
            second = np.where(way["amsgrad"], highest, v) / correction
            square = second - way["centered"] * mean * mean
            root = _root(way, np.maximum(square, 0), correction)
        if of_m is not None:
            m = of_m * m + (1 - of_m) * g
            first = m / (1 - way[CORRECTED] * of_m**t)
            step = first / root
        else:
            damped = 1 - way["dampening"] * (t > 1)  # as in torch
            m = momentum * m + damped * g / root
            ahead = g / root + momentum * m
            step = np.where(way["nesterov"], ahead, m)
        w = w - rate * step
        if t in KEPT:
            yield w - weights


def _root(way: Way, square: np.ndarray, correction: Any) -> np.ndarray:
    """Return by what an update is divided: the root of the mean square, with eps."""
    eps = way.get("eps", 0.0)
    if way[PLACE] == _INSIDE:
        return np.sqrt(square + eps)
    if way[PLACE] == _BEFORE:
        eps = eps / correction**0.5
    return np.sqrt(square) + eps


# a cause to try: what differs, what our net does, what the reference does, new entries of the way
Other = tuple[str, Words, Words, Way]


def _others(way: Way) -> Iterator[Other]:
    """Yield the causes to try."""
    if "β2" in way:
        yield from _other_betas(way)
    for word, words in _SWITCHES.items():
        on = way[word]
        yield words, (on == 0,), (on != 0,), {word: 1 - on}
    if way[DECAY].any():
        decoupled = way[_DECOUPLING]
        here = np.where(decoupled == 0, _DECOUPLED, _COUPLED)
        there = np.where(decoupled == 1, _DECOUPLED, _COUPLED)
        yield "weight decay", (here,), (there,), {_DECOUPLING: 1 - decoupled}
    if "momentum" in way:
        words = "dampening (the new gradient times 1 − μ)"
        momentum = way["momentum"]
        yield words, (momentum,), (way["dampening"],), {"dampening": momentum}
    for place in (_INSIDE, _BEFORE):
        yield "eps", place, _ROOT, {PLACE: place}
    yield BEGINS, "1", "0", {BEGINS: 1.0}
    # both in MindSpore's centred RMSProp
    yield "eps", f"{_INSIDE}, whose first mean square is 1,", _ROOT, {PLACE: _INSIDE, BEGINS: 1.0}
    for word, usual in _USUAL.items():
        if word not in way:
            continue
        own = way[word]
        given = [float(number) for number in np.unique(own)]
        for number in dict.fromkeys([*given, *usual]):
            yield word, f"{number:g}", (own,), {word: np.full_like(own, number)}


def _other_betas(way: Way) -> Iterator[Other]:
    """Yield causes in Adam's two factors and in its bias correction."""
    right = "m and v are divided by 1 − β^t"
    yield "Adam's bias correction", "missing", right, {CORRECTED: 0.0}
    b1 = way["β1"]
    b2 = way["β2"]
    betas = (b1, b2)
    yield "betas swapped: β1, β2", (b2, b1), betas, {"β1": b2, "β2": b1}
    words = "betas (β is the weight of the old state, not of the new)"
    for x, y in ((1 - b1, b2), (b1, 1 - b2), (1 - b1, 1 - b2)):
        yield words, (x, y), betas, {"β1": x, "β2": y}


def _text(words: Words, index: int) -> str:
    if isinstance(words, str):
        return words
    numbers = [column[index, 0] for column in words]
    return ", ".join(f"{one:g}" if isinstance(one, float) else str(one) for one in numbers)


def optimizer_causes(
    ours: Mapping[int, Arrays], theirs: Trace, names: NameMap, differing: list[str]
) -> list[str]:
    """Return one line for each known way in which the optimizers differ in the parameters
    `differing`.
    """
    shapes = {name: array.shape for name, array in theirs.run.gradients.items()}
    made = [names.rename(arrays) for arrays in made_up(shapes)]
    reference = [names.rename(theirs.optimizer_alone[update]) for update in KEPT]
    sides = [*made, *reference, *(ours[update] for update in KEPT)]
    settings = {word: paired(numbers, names) for word, numbers in theirs.optimizer_settings.items()}
    rows = {}
    for name in differing:
        if name in settings.get(DECAY, {}):
            arrays = [side[name] for side in sides]
            rows[name] = _furthest(arrays)
    if not rows or not {"β1", "α", "momentum"} & settings.keys():
        return []
    way = _reference_way(settings, list(rows))
    rates = settings.get(RATE, {})
    largest = max(rates.values(), default=1.0) or 1.0
    shares = _column(rates, rows, 1.0) / largest
    stacked = np.stack(list(rows.values()), 1)
    weights, directions, *changes = stacked
    wanted = changes[: len(KEPT)]
    here = changes[len(KEPT) :]

    def errors(way: Way, wanted: Sequence[np.ndarray]) -> np.ndarray:
        made = _changes(way, weights, directions, shares)
        return _errors(made, wanted)

    left = (errors(way, wanted) < FITS) & (errors(way, here) >= FITS)
    fits = []
    if left.any():
        for what, a, b, other in _others(way):
            error = errors({**way, **other}, here)
            fits.append((error, what, a, b))

    def rank(fit: tuple[np.ndarray, str, Words, Words]) -> tuple[int, float]:
        # Several ways may fit a small parameter: the way that fits most parameters comes first,
        # then the closest way.
        error = fit[0]
        fitted = (left & (error < FITS)).sum()
        return -int(fitted), float(error[left].min(initial=np.inf))

    fits.sort(key=rank)
    groups: dict[str, list[str]] = defaultdict(list)
    of_rows = list(rows)
    for error, what, a, b in fits:
        for index in np.flatnonzero(left & (error < FITS)):
            here_words = _text(a, index)
            words = f"{what}: {here_words} here, {_text(b, index)} in the reference"
            groups[words].append(of_rows[index])
        left &= error >= FITS
    return [f"{words} ({len(many)} parameters, first {many[0]})" for words, many in groups.items()]


def _furthest(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return `_SOME` numbers of each array: those at which our last change is furthest off."""
    flat = np.stack([np.ravel(array).astype(np.float64) for array in arrays])
    ours = flat[-1]
    theirs = flat[-1 - len(KEPT)]
    order = np.argsort(-np.abs(ours - theirs))
    return flat[:, np.resize(order, _SOME)]


def _column(numbers: Mapping[str, Any], names: Iterable[str], missing: float) -> np.ndarray:
    """Return the numbers of parameters as a column."""
    return np.array([[numbers.get(name, missing)] for name in names])


def _reference_way(settings: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> Way:
    """Return how the reference computes an update of the parameters `names`."""
    none = np.zeros((len(names), 1))
    switches = (*_SWITCHES, "dampening", _DECOUPLING)
    way: Way = dict.fromkeys(switches, none)
    for word, numbers in settings.items():
        way[word] = _column(numbers, names, 0.0)
    way[PLACE] = _ROOT
    way[BEGINS] = 0.0
    way[CORRECTED] = float("β1" in way)
    return way


def _errors(made: Iterator[np.ndarray], wanted: Sequence[np.ndarray]) -> np.ndarray:
    """Return, for each parameter, the largest relative error of weight changes against `wanted`."""
    each = []
    with np.errstate(all="ignore"):
        for a, b in zip(made, wanted, strict=True):
            apart = np.linalg.norm(a - b, axis=1)
            each.append(apart / np.linalg.norm(b, axis=1))
    return np.nan_to_num(np.max(each, 0), nan=np.inf)
