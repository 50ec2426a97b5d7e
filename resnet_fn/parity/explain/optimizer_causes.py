"""Find out why the optimizers differ, by computing updates in the ways in which ports are often
wrong.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
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

PLACE, CORRECTED, BEGINS = "place of eps", "bias correction", "the first mean square"

_SOME = 32  # how many numbers of a parameter are compared, beginning with the largest difference

_ROOT, _INSIDE = "added to the root √v̂", "inside the root, √(v̂ + eps)"

_BEFORE = "added to √v before its bias correction"

_DECOUPLING = "decoupled weight decay"

_COUPLED, _DECOUPLED = (
    "coupled (added to the gradient, as Adam)",
    "decoupled (taken from the weight, as AdamW)",
)

_SWITCHES = {"amsgrad": "amsgrad", "nesterov": "Nesterov momentum", "centered": "centered"}

# For each setting, the numbers that are tried instead of the reference's number.
_KEPT = (0.0, 0.5, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99)

_SQUARES = (0.9, 0.95, 0.98, 0.99, 0.999, 0.9999)

_USUAL: dict[str, Sequence[float]] = {
    **{"β1": _KEPT, "momentum": _KEPT, "β2": _SQUARES, "α": _SQUARES},
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
    w, m, v = weights.copy(), np.zeros_like(weights), np.full_like(weights, way[BEGINS])
    mean, highest = np.zeros_like(weights), np.zeros_like(weights)
    of_m, of_v = way.get("β1"), way.get("β2", way.get("α"))
    momentum, eps = way.get("momentum", 0.0), way.get("eps", 0.0)
    for t, (scale, base) in enumerate(zip(SCALES, RATES, strict=True), 1):
        rate, g = base * shares, scale * directions
        w, g = (
            w - rate * way[_DECOUPLING] * way[DECAY] * w,
            g + (1 - way[_DECOUPLING]) * way[DECAY] * w,
        )
        root: Any = 1.0
        if of_v is not None:
            v, mean = of_v * v + (1 - of_v) * g * g, of_v * mean + (1 - of_v) * g
            highest, correction = np.maximum(highest, v), 1 - way[CORRECTED] * of_v**t
            square = (
                np.where(way["amsgrad"], highest, v) / correction - way["centered"] * mean * mean
            )
            square, least = (
                np.maximum(square, 0),
                eps / (correction**0.5 if way[PLACE] == _BEFORE else 1.0),
            )
            root = np.sqrt(square + least) if way[PLACE] == _INSIDE else np.sqrt(square) + least
        if of_m is not None:
            m = of_m * m + (1 - of_m) * g
            step = m / (1 - way[CORRECTED] * of_m**t) / root
        else:
            m = momentum * m + (1 - way["dampening"] * (t > 1)) * g / root  # as in torch
            step = np.where(way["nesterov"], g / root + momentum * m, m)
        w = w - rate * step
        if t in KEPT:
            yield w - weights


def _others(way: Way) -> Iterator[tuple[str, Words, Words, Way]]:
    """Yield causes to try: tuples (what differs, what our net does, what the reference does, new
    entries of `way`).
    """
    if "β2" in way:
        yield (
            "Adam's bias correction",
            "missing",
            "m and v are divided by 1 − β^t",
            {CORRECTED: 0.0},
        )
        b1, b2 = betas = way["β1"], way["β2"]
        yield "betas swapped: β1, β2", (b2, b1), betas, {"β1": b2, "β2": b1}
        for x, y in ((1 - b1, b2), (b1, 1 - b2), (1 - b1, 1 - b2)):
            yield (
                "betas (β is the weight of the old state, not of the new)",
                (x, y),
                betas,
                {"β1": x, "β2": y},
            )
    for word, words in _SWITCHES.items():
        yield words, (way[word] == 0,), (way[word] != 0,), {word: 1 - way[word]}
    if way[DECAY].any():
        here, there = (np.where(way[_DECOUPLING] == on, _DECOUPLED, _COUPLED) for on in (0, 1))
        yield "weight decay", (here,), (there,), {_DECOUPLING: 1 - way[_DECOUPLING]}
    if "momentum" in way:
        words = "dampening (the new gradient times 1 − μ)"
        yield words, (way["momentum"],), (way["dampening"],), {"dampening": way["momentum"]}
    for place in (_INSIDE, _BEFORE):
        yield "eps", place, _ROOT, {PLACE: place}
    yield BEGINS, "1", "0", {BEGINS: 1.0}
    # both in MindSpore's centred RMSProp
    yield "eps", f"{_INSIDE}, whose first mean square is 1,", _ROOT, {PLACE: _INSIDE, BEGINS: 1.0}
    for word in [word for word in _USUAL if word in way]:
        for number in dict.fromkeys([*map(float, np.unique(way[word])), *_USUAL[word]]):
            yield word, f"{number:g}", (way[word],), {word: np.full_like(way[word], number)}


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
    made = map(
        names.rename, made_up({name: array.shape for name, array in theirs.run.gradients.items()})
    )
    sides = [
        *made,
        *(names.rename(theirs.optimizer_alone[update]) for update in KEPT),
        *(ours[update] for update in KEPT),
    ]
    settings = {word: paired(numbers, names) for word, numbers in theirs.optimizer_settings.items()}
    rows = {}
    for name in [name for name in differing if name in settings.get(DECAY, {})]:
        flat = np.stack([np.ravel(side[name]).astype(np.float64) for side in sides])
        furthest = np.argsort(-np.abs(flat[-1] - flat[-1 - len(KEPT)]))
        rows[name] = flat[:, np.resize(furthest, _SOME)]
    if not rows or not {"β1", "α", "momentum"} & settings.keys():
        return []
    own = {
        word: np.array([[numbers.get(name, 0.0)] for name in rows])
        for word, numbers in settings.items()
    }
    none = np.zeros((len(rows), 1))
    way = {
        **dict.fromkeys((*_SWITCHES, "dampening", _DECOUPLING), none),
        **own,
        PLACE: _ROOT,
        BEGINS: 0.0,
    }
    way[CORRECTED] = float("β1" in way)
    rates = settings.get(RATE, {})
    shares = np.array([[rates.get(name, 1.0)] for name in rows]) / (
        max(rates.values(), default=1.0) or 1.0
    )
    weights, directions, *changes = np.stack(list(rows.values()), 1)

    def errors(way: Way, wanted: Sequence[np.ndarray]) -> np.ndarray:
        """Return, for each parameter, the largest relative error of the weight changes by `way`
        against `wanted`.
        """
        with np.errstate(all="ignore"):
            pairs = zip(_changes(way, weights, directions, shares), wanted, strict=True)
            each = [np.linalg.norm(a - b, axis=1) / np.linalg.norm(b, axis=1) for a, b in pairs]
        return np.nan_to_num(np.max(each, 0), nan=np.inf)

    reference, here = changes[: len(KEPT)], changes[len(KEPT) :]
    left = (errors(way, reference) < FITS) & (errors(way, here) >= FITS)
    fits = (
        [(errors({**way, **other}, here), words) for *words, other in _others(way)]
        if left.any()
        else []
    )
    # Several ways may fit a small parameter: the way that fits most parameters comes first, then
    # the closest way.
    fits.sort(key=lambda one: (-(left & (one[0] < FITS)).sum(), one[0][left].min(initial=np.inf)))
    groups: dict[str, list[str]] = defaultdict(list)
    for error, (what, a, b) in fits:
        for index in np.flatnonzero(left & (error < FITS)):
            words = f"{what}: {_text(a, index)} here, {_text(b, index)} in the reference"
            groups[words].append(list(rows)[index])
        left &= error >= FITS
    return [f"{words} ({len(many)} parameters, first {many[0]})" for words, many in groups.items()]
