"""Find out why the optimizers differ, by computing updates in the ways in which ports are often
wrong.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from resnet_fn.parity.pair.like import paired
from resnet_fn.parity.pair.name_map import NameMap
from resnet_fn.parity.trace.data import DECAY_SETTING, RATE_SETTING, Trace
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
    DECAY_SETTING: (0.0, 1e-5, 1e-4, 5e-4, 1e-3, 1e-2, 0.05, 0.1),
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
    decay = way[DECAY_SETTING]
    decoupled = way[_DECOUPLING]
    corrected = way[CORRECTED]
    updates = zip(SCALES, RATES, strict=True)
    for t, (scale, base) in enumerate(updates, 1):
        rate = base * shares
        g = scale * directions
        coupled = (1 - decoupled) * decay
        g = g + coupled * w
        decayed = rate * decoupled * decay * w
        w = w - decayed
        root: Any = 1.0
        if of_v is not None:
            rest = 1 - of_v
            v = of_v * v + rest * g * g
            mean = of_v * mean + rest * g
            highest = np.maximum(highest, v)
            correction = 1 - corrected * of_v**t
            amsgrad = way["amsgrad"]
            second = np.where(amsgrad, highest, v)
            square = second / correction
            square = square - way["centered"] * mean * mean
            square = np.maximum(square, 0)
            root = _root(way, square, correction)
        if of_m is not None:
            rest = 1 - of_m
            m = of_m * m + rest * g
            correction = 1 - corrected * of_m**t
            step = m / correction / root
        else:
            damped = 1 - way["dampening"] * (t > 1)  # as in torch
            change = damped * g / root
            m = momentum * m + change
            ahead = g / root + momentum * m
            nesterov = way["nesterov"]
            step = np.where(nesterov, ahead, m)
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


# a cause to try: what differs, what the port does, what the reference does, new entries of the way
Other = tuple[str, Words, Words, Way]


def _others(way: Way) -> Iterator[Other]:
    """Yield the causes to try."""
    if "β2" in way:
        yield from _other_betas(way)
    for word, text in _SWITCHES.items():
        on = way[word]
        in_port = (on == 0,)
        in_reference = (on != 0,)
        yield text, in_port, in_reference, {word: 1 - on}
    if way[DECAY_SETTING].any():
        decoupled = way[_DECOUPLING]
        in_port = (np.where(decoupled == 0, _DECOUPLED, _COUPLED),)
        in_reference = (np.where(decoupled == 1, _DECOUPLED, _COUPLED),)
        other = {_DECOUPLING: 1 - decoupled}
        yield "weight decay", in_port, in_reference, other
    if "momentum" in way:
        text = "dampening (the new gradient times 1 − μ)"
        momentum = way["momentum"]
        in_port = (momentum,)
        in_reference = (way["dampening"],)
        other = {"dampening": momentum}
        yield text, in_port, in_reference, other
    for place in (_INSIDE, _BEFORE):
        yield "eps", place, _ROOT, {PLACE: place}
    yield BEGINS, "1", "0", {BEGINS: 1.0}
    # both in MindSpore's centred RMSProp
    text = f"{_INSIDE}, whose first mean square is 1,"
    both = {PLACE: _INSIDE, BEGINS: 1.0}
    yield "eps", text, _ROOT, both
    for word, usual in _USUAL.items():
        if word not in way:
            continue
        own = way[word]
        numbers = [float(number) for number in np.unique(own)]
        for number in dict.fromkeys([*numbers, *usual]):
            column = np.full_like(own, number)
            yield word, f"{number:g}", (own,), {word: column}


def _other_betas(way: Way) -> Iterator[Other]:
    """Yield causes in Adam's two factors and in its bias correction."""
    right = "m and v are divided by 1 − β^t"
    yield "Adam's bias correction", "missing", right, {CORRECTED: 0.0}
    b1 = way["β1"]
    b2 = way["β2"]
    betas = (b1, b2)
    swapped = (b2, b1)
    yield "betas swapped: β1, β2", swapped, betas, {"β1": b2, "β2": b1}
    text = "betas (β is the weight of the old state, not of the new)"
    new1 = 1 - b1
    new2 = 1 - b2
    mistaken = [(new1, b2), (b1, new2), (new1, new2)]
    for others in mistaken:
        x, y = others
        yield text, others, betas, {"β1": x, "β2": y}


def _text(words: Words, index: int) -> str:
    if isinstance(words, str):
        return words
    texts = []
    for column in words:
        value = column[index, 0]
        text = f"{value:g}" if isinstance(value, float) else str(value)
        texts.append(text)
    return ", ".join(texts)


Fit = tuple[np.ndarray, str, Words, Words]  # errors by parameter, and the words of a cause


def optimizer_causes(
    port: Mapping[int, Arrays], reference: Trace, names: NameMap, differing: list[str]
) -> list[str]:
    """Return one line for each known way in which the optimizers differ in the parameters
    `differing`.
    """
    gradients = reference.run.gradients
    shapes = {name: array.shape for name, array in gradients.items()}
    sides = [names.rename(arrays) for arrays in made_up(shapes)]
    for update in KEPT:
        reference_changes = reference.optimizer_alone[update]
        sides.append(names.rename(reference_changes))
    sides += [port[update] for update in KEPT]
    settings = {}
    for word, numbers in reference.optimizer_settings.items():
        settings[word] = paired(numbers, names)
    decays = settings.get(DECAY_SETTING, {})
    rows = {}
    for name in differing:
        if name in decays:
            arrays = [side[name] for side in sides]
            rows[name] = _furthest(arrays)
    needed = {"β1", "α", "momentum"}
    known = needed & settings.keys()
    if not rows or not known:
        return []
    of_rows = list(rows)
    way = _reference_way(settings, of_rows)
    rates = settings.get(RATE_SETTING, {})
    largest = max(rates.values(), default=1.0) or 1.0
    relative_rates = _column(rates, rows, 1.0)
    shares = relative_rates / largest
    arrays = list(rows.values())
    stacked = np.stack(arrays, 1)
    weights, directions, *changes = stacked
    count = len(KEPT)
    wanted = changes[:count]
    port_changes = changes[count:]

    def errors(way: Way, wanted: Sequence[np.ndarray]) -> np.ndarray:
        made = _changes(way, weights, directions, shares)
        return _errors(made, wanted)

    is_right = errors(way, wanted) < FITS
    is_wrong = errors(way, port_changes) >= FITS
    left = is_right & is_wrong
    fits: list[Fit] = []
    if left.any():
        for what, a, b, other in _others(way):
            error = errors({**way, **other}, port_changes)
            fits.append((error, what, a, b))

    return _lines(fits, left, of_rows)


def _lines(fits: list[Fit], left: np.ndarray, names: Sequence[str]) -> list[str]:
    """Return a line for each cause that fits parameters.

    `left` is True for each parameter that needs a cause.
    """

    def rank(fit: Fit) -> tuple[int, float]:
        # Several ways may fit a small parameter: the way that fits most parameters comes first,
        # then the closest way.
        error = fit[0]
        fitted = left & (error < FITS)
        least = error[left].min(initial=np.inf)
        count = int(fitted.sum())
        return -count, float(least)

    groups: dict[str, list[str]] = defaultdict(list)
    for error, what, a, b in sorted(fits, key=rank):
        fitted = left & (error < FITS)
        for index in np.flatnonzero(fitted):
            port = _text(a, index)
            reference = _text(b, index)
            cause = f"{what}: {port} in the port, {reference} in the reference"
            groups[cause].append(names[index])
        left = left & (error >= FITS)
    lines = []
    for cause, many in groups.items():
        count = len(many)
        lines.append(f"{cause} ({count} parameters, first {many[0]})")
    return lines


Numbers = Mapping[str, Any]  # one setting of each parameter


def _furthest(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return `_SOME` numbers of each array: those at which the port's last change is furthest
    off.
    """
    rows = [np.ravel(array) for array in arrays]
    doubles = [row.astype(np.float64) for row in rows]
    flat = np.stack(doubles)
    port = flat[-1]
    reference = flat[-1 - len(KEPT)]
    apart = np.abs(port - reference)
    order = np.argsort(-apart)
    return flat[:, np.resize(order, _SOME)]


def _column(numbers: Numbers, names: Iterable[str], missing: float) -> np.ndarray:
    """Return the numbers of parameters as a column."""
    rows = [numbers.get(name, missing) for name in names]
    return np.array([[number] for number in rows])


def _reference_way(settings: Mapping[str, Numbers], names: Sequence[str]) -> Way:
    """Return how the reference computes an update of the parameters `names`."""
    none = np.zeros((len(names), 1))
    switches = [*_SWITCHES, "dampening", _DECOUPLING]
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
            size = np.linalg.norm(b, axis=1)
            each.append(apart / size)
    worst = np.max(each, 0)
    return np.nan_to_num(worst, nan=np.inf)
