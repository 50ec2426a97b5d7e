"""Why an optimizer alone differs: the reference's is computed from its settings, and so is each other way of it.

A way is named for the parameters whose changes it gives, if the reference's settings give the reference's changes.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from resnet_fn.parity.alone import KEPT, RATES, SCALES, made_up
from resnet_fn.parity.layers.difference import relative_error
from resnet_fn.parity.name_map import NameMap
from resnet_fn.parity.optimizer_settings import DECAY, RATE
from resnet_fn.parity.origins import FITS
from resnet_fn.parity.trace import Arrays, Trace

_SOME, _FEW, _ALL = 64, 8, 1024  # numbers of a parameter that are compared: at most, at least; of all, about


class Way(NamedTuple):
    """How SGD, RMSProp or Adam is written; `decay` and `rate` are numbers of each element."""

    kind: str
    rate: np.ndarray
    decay: np.ndarray
    momentum: float  # β1
    keep: float = 0.0  # β2, RMSProp's α
    eps: float = 0.0
    place: str = "added to the root √v̂"
    corrects: str = "m and v are divided by 1 − β^t"
    decoupled: bool = False
    nesterov: bool = False
    dampening: float = 0.0
    amsgrad: bool = False
    centered: bool = False
    begins: float = 0.0
    inside: bool = False  # the learning rate inside the momentum


_INSIDE, _BEFORE = "inside the root, √(v̂ + eps),", "added to √v before its bias correction"
_MISSING, _OF_V = "is missing", "of v is missing"


def _changes(way: Way, weights: np.ndarray, directions: np.ndarray) -> Iterator[np.ndarray]:
    """The changes of weights after the updates that are `KEPT`."""
    w, m, v = weights.copy(), np.zeros_like(weights), np.full_like(weights, way.begins)
    mean, highest, adam = np.zeros_like(weights), np.zeros_like(weights), way.kind == "adam"
    for t, (scale, base) in enumerate(zip(SCALES, RATES, strict=True), 1):
        rate, g = base * way.rate, scale * directions
        w, g = (w - rate * way.decay * w, g) if way.decoupled else (w, g + way.decay * w)
        if way.kind != "sgd":
            v = way.keep * v + (1 - way.keep) * g * g
            mean = way.keep * mean + (1 - way.keep) * g if way.centered else mean
            of_v = 1 - way.keep**t if adam and way.corrects not in (_MISSING, _OF_V) else 1.0
            highest = np.maximum(highest, v)
            square = np.maximum((highest if way.amsgrad else v) / of_v - mean * mean, 0)
            eps = np.divide(way.eps, of_v**0.5) if way.place == _BEFORE else way.eps
            root = np.sqrt(square + eps) if way.place == _INSIDE else np.sqrt(square) + eps
        if adam:
            m = way.momentum * m + (1 - way.momentum) * g
            step = m / (1.0 if way.corrects == _MISSING else 1 - way.momentum**t) / root
        else:
            g = g if way.kind == "sgd" else g / root
            dampening = way.dampening if t > 1 else 0.0  # as in torch
            m = way.momentum * m + (rate if way.inside else 1 - dampening) * g
            step = (g + way.momentum * m if way.nesterov else m) / (rate if way.inside else 1.0)
        w = w - rate * step
        if f"update {t}" in KEPT:
            yield w - weights


def _rules(way: Way) -> Iterator[tuple[str, Way]]:
    """Every other way, in words."""
    numbers: tuple[float, ...]
    here, there = "{} here, {} in the reference", "in the reference"
    sgd, adam = way.kind == "sgd", way.kind == "adam"
    if adam:
        for words in (_MISSING, _OF_V):
            yield f"Adam's bias correction {words} here; in the reference {way.corrects}", way._replace(corrects=words)
        b1, b2 = way.momentum, way.keep
        yield (
            f"betas swapped: β1 {b2:g} and β2 {b1:g} here, {b1:g} and {b2:g} {there}",
            way._replace(momentum=b2, keep=b1),
        )
        for other in (
            way._replace(momentum=1 - b1),
            way._replace(keep=1 - b2),
            way._replace(momentum=1 - b1, keep=1 - b2),
        ):
            words = f"β1 {other.momentum:g} and β2 {other.keep:g} here, {b1:g} and {b2:g} {there}"
            yield f"betas: {words}; β is the weight of the old state, not of the new", other
        yield f"amsgrad {here.format(*(not way.amsgrad, way.amsgrad))}", way._replace(amsgrad=not way.amsgrad)
    of_adam, of_adamw = "coupled (added to the gradient, as Adam)", "decoupled (taken from the weight, as AdamW)"
    if way.decay.any():
        both = (of_adam, of_adamw) if way.decoupled else (of_adamw, of_adam)
        yield f"weight decay is {here.format(*both)}", way._replace(decoupled=not way.decoupled)
    if not sgd:
        for place in (_INSIDE, _BEFORE) if adam else (_INSIDE,):
            yield f"eps is {place} here, {way.place} in the reference", way._replace(place=place)
        yield "the mean square begins at 1 here, at 0 in the reference", way._replace(begins=1.0)
    if way.kind == "rmsprop":
        yield f"centered {here.format(*(not way.centered, way.centered))}", way._replace(centered=not way.centered)
    if sgd and way.momentum:
        with_it, plain = (there, "here") if way.nesterov else ("here", there)
        words = f"Nesterov momentum {with_it} (μ {way.momentum:.3g}), plain momentum {plain}"
        yield words, way._replace(nesterov=not way.nesterov)
        words = f"dampening {here.format(f'{way.momentum:g}', f'{way.dampening:g}')}: the new gradient times 1 − μ"
        yield words, way._replace(dampening=way.momentum)
        yield "the learning rate is inside the momentum here, outside in the reference", way._replace(inside=True)
    values = {
        "momentum" if not adam else "β1": ("momentum", (0.0, 0.5, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99)),
        "α" if not adam else "β2": ("keep", () if sgd else (0.9, 0.95, 0.98, 0.99, 0.999, 0.9999)),
        "eps": ("eps", () if sgd else (1e-8, 1e-6, 1e-5, 1e-7, 1e-10, 1e-12, 1e-4, 1e-3, 1e-2, 1e-1)),
    }
    for name, (field, numbers) in values.items():
        for number in [number for number in numbers if not np.isclose(number, getattr(way, field), 1e-6, 0)]:
            yield f"{name}: {here.format(f'{number:g}', f'{getattr(way, field):g}')}", way._replace(**{field: number})  # type: ignore[arg-type]
    for number in dict.fromkeys([0.0, *map(float, np.unique(way.decay)), 1e-5, 1e-4, 5e-4, 1e-3, 1e-2, 0.05, 0.1]):
        yield f"weight decay: {number:g} here", way._replace(decay=np.full_like(way.decay, number))
    for factor in (0.1, 0.5, 2.0, 10.0):
        yield f"the learning rate is {factor:g} times the reference's", way._replace(rate=way.rate * factor)


def optimizer_causes(ours: Mapping[str, Arrays], theirs: Trace, names: NameMap, differing: list[str]) -> list[str]:
    """How the optimizers differ, for the parameters `differing`; empty if no known way fits."""
    settings = theirs.settings
    kind = "adam" if "β1" in settings else "rmsprop" if "α" in settings else "sgd" if "momentum" in settings else ""
    made = map(names.rename, made_up({name: array.shape for name, array in theirs.gradients.items()}))
    sides = [*made, *(names.rename(theirs.alone[update]) for update in KEPT), *(ours[update] for update in KEPT)]
    some = max(_FEW, min(_SOME, _ALL // max(1, len(differing))))
    rates = settings.get(RATE, {})
    share = {name: rate / (max(rates.values()) or 1.0) for name, rate in rates.items()}
    decays = settings.get(DECAY, {})
    columns, ends = [], {}
    for name in differing if kind else ():
        sources = [source for source in names.sources(name) if source in decays]
        flat = [np.ravel(side[name]).astype(np.float64) for side in sides]
        places = np.argsort(-np.abs(flat[-1] - flat[-1 - len(KEPT)]))[:some]  # where they differ most
        flat = [array[places] for array in flat]
        given = [{values.get(source, default) for source in sources} for values, default in ((share, 1.0), (decays, 0))]
        if all(len(values) == 1 for values in given):  # not parts of several groups
            columns.append(np.stack([*flat, *(np.full_like(flat[0], values.pop()) for values in given)]))
            ends[name] = flat[0].size
    if not columns:
        return []
    weights, directions, *changes, rate, decay = np.concatenate(columns, 1)
    reference, here = changes[: len(KEPT)], changes[len(KEPT) :]

    def number(word: str) -> float:
        return next(iter(settings.get(word, {}).values()), 0.0)

    way = Way(
        *(
            kind,
            rate,
            decay,
            number("β1" if kind == "adam" else "momentum"),
            number("β2") or number("α"),
            number("eps"),
        ),
        decoupled=bool(number("decoupled weight decay")),
        nesterov=bool(number("nesterov")),
        dampening=number("dampening"),
        amsgrad=bool(number("amsgrad")),
        centered=bool(number("centered")),
    )
    pieces = np.split(np.arange(rate.size), np.cumsum(list(ends.values()))[:-1])
    by_name = dict(zip(ends, pieces, strict=True))

    def fitting(way: Way, wanted: list[np.ndarray], names: list[str]) -> dict[str, float]:
        """The parameters whose changes a way gives, with its error."""
        with np.errstate(all="ignore"):
            pairs = list(zip(_changes(way, weights, directions), wanted, strict=True))
        errors = {n: max(relative_error(a[by_name[n]], b[by_name[n]]) for a, b in pairs) for n in names}
        return {name: error for name, error in errors.items() if error < FITS}

    equal = fitting(way, here, list(ends))
    left = [name for name in fitting(way, reference, list(ends)) if name not in equal]
    groups: dict[str, list[str]] = defaultdict(list)
    singles = [(words, fitting(other, here, left)) for words, other in _rules(way)] if left else []
    # A small parameter fits several ways: that of the other parameters comes first, then the closest.
    singles.sort(key=lambda fit: (-len(fit[1]), sum(fit[1].values())))
    twice = ((f"{a}; {b}", fitting(two, here, left)) for a, one in _rules(way) for b, two in _rules(one) if left)
    for words, fits in itertools.chain(singles, twice):
        for name in [name for name in fits if name in left]:
            left.remove(name)
            of_reference = f", {decay[by_name[name][0]]:g} in the reference" if words.endswith(" here") else ""
            groups[words + of_reference].append(name)
    return [f"{words} ({len(many)} parameters, first {many[0]})" for words, many in groups.items()]
