"""Why an optimizer alone differs: the reference's is computed from its settings, and so is each other way of it.

A way is named for the parameters whose changes it gives, if the reference's settings give the reference's changes.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from resnet_fn.parity.alone import KEPT, RATES, SCALES, made_up
from resnet_fn.parity.layers.difference import FITS
from resnet_fn.parity.name_map import NameMap
from resnet_fn.parity.optimizer_settings import DECAY, RATE, Settings, paired
from resnet_fn.parity.trace import Arrays, Trace

_SOME = 32  # numbers of a parameter that are compared, those that differ most
_INSIDE, _BEFORE = "inside the root, √(v̂ + eps)", "added to √v before its bias correction"
_CORRECTED, _MISSING = "m and v are divided by 1 − β^t", "missing"
_COUPLED, _DECOUPLED = "coupled (added to the gradient, as Adam)", "decoupled (taken from the weight, as AdamW)"
# Numbers that are tried in place of the reference's, by setting.
_USUAL = {
    "β1": (0.0, 0.5, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99),
    "β2": (0.9, 0.95, 0.98, 0.99, 0.999, 0.9999),
    "eps": (1e-12, 1e-10, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1),
    "decay": (0.0, 1e-5, 1e-4, 5e-4, 1e-3, 1e-2, 0.05, 0.1),
}


class Way(NamedTuple):
    """How SGD, RMSProp or Adam is written; `decay` has a number for each parameter."""

    kind: str
    decay: np.ndarray
    momentum: float  # Adam's β1
    beta2: float  # RMSProp's α
    eps: float
    dampening: float
    decoupled: bool
    nesterov: bool
    amsgrad: bool
    centered: bool
    place: str = "added to the root √v̂"  # of eps
    correction: str = _CORRECTED
    begins: float = 0.0  # the mean square


def _changes(way: Way, weights: np.ndarray, directions: np.ndarray, shares: np.ndarray) -> Iterator[np.ndarray]:
    """The changes of weights, a row for each parameter, after the updates that are `KEPT`."""
    w, m, v = weights.copy(), np.zeros_like(weights), np.full_like(weights, way.begins)
    mean, highest, adam = np.zeros_like(weights), np.zeros_like(weights), way.kind == "adam"
    for t, (scale, base) in enumerate(zip(SCALES, RATES, strict=True), 1):
        rate, g = base * shares, scale * directions
        w, g = (w - rate * way.decay * w, g) if way.decoupled else (w, g + way.decay * w)
        if way.kind != "sgd":
            v = way.beta2 * v + (1 - way.beta2) * g * g
            mean = way.beta2 * mean + (1 - way.beta2) * g if way.centered else mean
            of_v = 1 - way.beta2**t if adam and way.correction == _CORRECTED else 1.0
            highest = np.maximum(highest, v)
            square = np.maximum((highest if way.amsgrad else v) / of_v - mean * mean, 0)
            eps = np.divide(way.eps, of_v**0.5) if way.place == _BEFORE else way.eps
            root = np.sqrt(square + eps) if way.place == _INSIDE else np.sqrt(square) + eps
        if adam:
            m = way.momentum * m + (1 - way.momentum) * g
            step = m / (1 - way.momentum**t if way.correction == _CORRECTED else 1.0) / root
        else:
            g = g if way.kind == "sgd" else g / root
            dampening = way.dampening if t > 1 else 0.0  # as in torch
            m = way.momentum * m + (1 - dampening) * g
            step = g + way.momentum * m if way.nesterov else m
        w = w - rate * step
        if f"update {t}" in KEPT:
            yield w - weights


def _others(way: Way) -> Iterator[tuple[str, str, str, Way]]:
    """Every other way: of what, here, in the reference."""
    b1, b2, adam = way.momentum, way.beta2, way.kind == "adam"
    if adam:
        yield "Adam's bias correction", _MISSING, _CORRECTED, way._replace(correction=_MISSING)
        yield "betas swapped: β1, β2", f"{b2:g}, {b1:g}", f"{b1:g}, {b2:g}", way._replace(momentum=b2, beta2=b1)
        for x, y in ((1 - b1, b2), (b1, 1 - b2), (1 - b1, 1 - b2)):
            words = "betas (β is the weight of the old state, not of the new)"
            yield words, f"{x:g}, {y:g}", f"{b1:g}, {b2:g}", way._replace(momentum=x, beta2=y)
        yield "amsgrad", str(not way.amsgrad), str(way.amsgrad), way._replace(amsgrad=not way.amsgrad)
    if way.decay.any():
        both = (_COUPLED, _DECOUPLED) if way.decoupled else (_DECOUPLED, _COUPLED)
        yield "weight decay", *both, way._replace(decoupled=not way.decoupled)
    if way.kind == "sgd":
        yield "Nesterov momentum", str(not way.nesterov), str(way.nesterov), way._replace(nesterov=not way.nesterov)
        words = "dampening (the new gradient times 1 − μ)"
        yield words, f"{b1:g}", f"{way.dampening:g}", way._replace(dampening=b1)
    else:
        for place in (_INSIDE, _BEFORE):
            yield "eps", place, way.place, way._replace(place=place)
        yield "the first mean square", "1", "0", way._replace(begins=1.0)
        words = f"{_INSIDE}, whose first mean square is 1,"  # both in MindSpore's centred RMSProp
        yield "eps", words, way.place, way._replace(place=_INSIDE, begins=1.0)
        yield "centered", str(not way.centered), str(way.centered), way._replace(centered=not way.centered)
    names = ("β1", "β2") if adam else ("momentum", "α")
    for word, field, usual in (*zip(names, ("momentum", "beta2"), ("β1", "β2"), strict=True), ("eps", "eps", "eps")):
        for number in () if way.kind == "sgd" and field != "momentum" else _USUAL[usual]:
            other = way._replace(**{field: number})  # type: ignore[arg-type]
            yield word, f"{number:g}", f"{getattr(way, field):g}", other
    for number in dict.fromkeys([*map(float, np.unique(way.decay)), *_USUAL["decay"]]):
        yield "weight decay", f"{number:g}", "", way._replace(decay=np.full_like(way.decay, number))


def _way_of(settings: Settings, decay: np.ndarray) -> Way | None:
    """The way that settings stand for; None if they are of another optimizer."""

    def number(word: str) -> float:
        return next(iter(settings.get(word, {}).values()), 0.0)

    kind = "adam" if "β1" in settings else "rmsprop" if "α" in settings else "sgd" if "momentum" in settings else ""
    numbers = (number("β1") or number("momentum"), number("β2") or number("α"), number("eps"))
    decoupled, nesterov = bool(number("decoupled weight decay")), bool(number("nesterov"))
    amsgrad, centered = bool(number("amsgrad")), bool(number("centered"))
    way = Way(kind, decay, *numbers, number("dampening"), decoupled, nesterov, amsgrad, centered)
    return way if kind else None


def optimizer_causes(ours: Mapping[str, Arrays], theirs: Trace, names: NameMap, differing: list[str]) -> list[str]:
    """How the optimizers differ, for the parameters `differing`; empty if no known way fits."""
    settings = theirs.settings
    decays, rates = paired(settings.get(DECAY, {}), names), paired(settings.get(RATE, {}), names)
    made = map(names.rename, made_up({name: array.shape for name, array in theirs.gradients.items()}))
    sides = [*made, *(names.rename(theirs.alone[update]) for update in KEPT), *(ours[update] for update in KEPT)]
    rows = {}
    for name in [name for name in differing if name in decays]:
        flat = np.stack([np.ravel(side[name]).astype(np.float64) for side in sides])
        furthest = np.argsort(-np.abs(flat[-1] - flat[-1 - len(KEPT)]))
        rows[name] = flat[:, np.resize(furthest, _SOME)]
    shares = np.array([[rates.get(name, 1.0)] for name in rows]) / (max(rates.values(), default=1.0) or 1.0)
    way = _way_of(settings, np.array([[decays[name]] for name in rows]))
    if way is None or not rows:
        return []
    weights, directions, *changes = np.stack(list(rows.values()), 1)

    def errors(way: Way, wanted: Sequence[np.ndarray]) -> np.ndarray:
        """How far a way is from the changes of each parameter."""
        with np.errstate(all="ignore"):
            pairs = zip(_changes(way, weights, directions, shares), wanted, strict=True)
            each = [np.linalg.norm(a - b, axis=1) / np.linalg.norm(b, axis=1) for a, b in pairs]
        return np.nan_to_num(np.max(each, 0), nan=np.inf)

    reference, here = changes[: len(KEPT)], changes[len(KEPT) :]
    left = (errors(way, reference) < FITS) & (errors(way, here) >= FITS)
    fits = [(errors(other, here), words) for *words, other in _others(way)] if left.any() else []
    # A small parameter fits several ways: that of the most parameters comes first, then the closest.
    fits.sort(key=lambda one: (-(left & (one[0] < FITS)).sum(), one[0][left].min(initial=np.inf)))
    groups: dict[str, list[str]] = defaultdict(list)
    for error, (what, a, b) in fits:
        for index in np.flatnonzero(left & (error < FITS)):
            there = b or f"{float(way.decay[index, 0]):g}"
            groups[f"{what}: {a} here, {there} in the reference"].append(list(rows)[index])
        left &= error >= FITS
    return [f"{words} ({len(many)} parameters, first {many[0]})" for words, many in groups.items()]
