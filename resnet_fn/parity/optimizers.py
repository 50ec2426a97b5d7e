"""How two optimizers differ: their settings, parameter by parameter, in words that both frameworks share; and why.

Weight decay or momentum may be too small to show in a few updates. Where an optimizer alone differs, the reference's is
computed from its settings, and so is each other way of it. A way is named for the parameters whose changes it gives, if
the reference's settings give the reference's changes.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from resnet_fn.parity.alone import KEPT, RATES, SCALES, made_up
from resnet_fn.parity.layers.difference import DIFFERS, FITS, Difference, difference
from resnet_fn.parity.name_map import NameMap
from resnet_fn.parity.trace import Arrays, Trace

Settings = dict[str, dict[str, float]]  # word: parameter: number

RATE, DECAY = "learning rate", "weight decay"
# What both frameworks call their settings, and what we call them; `betas` is a pair.
_WORDS = {
    **{"lr": RATE, "weight_decay": DECAY, "beta1": "β1", "beta2": "β2", "alpha": "α", "decay": "α"},
    **dict.fromkeys(("eps", "epsilon"), "eps"),
    **dict.fromkeys(("nesterov", "use_nesterov"), "nesterov"),
    **dict.fromkeys(("amsgrad", "use_amsgrad"), "amsgrad"),
    **{word: word for word in ("momentum", "dampening", "centered", "maximize")},
    "decoupled_weight_decay": "decoupled weight decay",
}
_SAME = 1e-6  # relative: MindSpore keeps numbers in float32


def torch_settings(groups: Iterable[Mapping[str, Any]], names: Mapping[int, str]) -> Settings:
    """The settings in a torch optimizer's parameter groups; `names` has the id of each parameter."""
    settings: Settings = {}
    for group in groups:
        trained = [names[id(one)] for one in group["params"] if id(one) in names]
        numbers = {**group, **dict(zip(("beta1", "beta2"), group.get("betas", ()), strict=False))}
        for key in [key for key in numbers if key in _WORDS]:
            settings.setdefault(_WORDS[key], {}).update(dict.fromkeys(trained, float(numbers[key])))
    return settings


def mindspore_settings(optimizer: Any, names: Mapping[int, str]) -> Settings:
    """The settings of an `nn.Optimizer`. Without groups, its parameters named gamma and beta get no weight decay."""
    count = len(optimizer.parameters)

    def of_each(values: Any) -> Iterable[float]:
        spread = values if isinstance(values, tuple) else (values,) * count
        return (float(value.numpy().item() if hasattr(value, "numpy") else value) for value in spread)

    values = {RATE: of_each(optimizer.learning_rate)}
    if not optimizer.dynamic_weight_decay:
        pairs = zip(of_each(optimizer.weight_decay), optimizer.decay_flags, strict=True)
        values[DECAY] = (decay if applies else 0.0 for decay, applies in pairs)
    others = [key for key in _WORDS if key not in ("lr", "weight_decay") and hasattr(optimizer, key)]
    values |= {_WORDS[key]: of_each(getattr(optimizer, key)) for key in others}
    order = [names[id(parameter)] for parameter in optimizer.parameters]
    return {word: dict(zip(order, numbers, strict=True)) for word, numbers in values.items()}


def compare_settings(ours: Settings, theirs: Settings, names: NameMap) -> tuple[list[Difference], list[str]]:
    """Every number that both sides have for a parameter, and those that differ in words.

    A parameter that the optimizer of one side alone updates is a difference.
    """
    differences: list[Difference] = []
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names.parameters if RATE in ours and RATE in theirs else ():
        updates = [name in ours[RATE], any(source in theirs[RATE] for source in names.sources(name))]
        if updates[0] != updates[1]:
            differences.append(difference(f"whether {name} is updated", *updates))
            groups[f"updated by the optimizer {'here' if updates[0] else 'in the reference'} only"].append(name)
    for word in [word for word in ours if word in theirs]:
        for name, here in ours[word].items():
            for there in {theirs[word][source] for source in names.sources(name) if source in theirs[word]}:
                differences.append(difference(f"{word} of {name}", here, there, tolerance=_SAME))
                if differences[-1].verdict == DIFFERS:
                    groups[f"{word}: {here:.6g} here, {there:.6g} in the reference"].append(name)
    return differences, [f"{words} ({len(many)} parameters, first {many[0]})" for words, many in groups.items()]


def paired(numbers: Mapping[str, float], names: NameMap) -> dict[str, float]:
    """The reference's number of each of our parameters; those whose parts differ in it are left out."""
    given = {name: {numbers[one] for one in names.sources(name) if one in numbers} for name in names.parameters}
    return {name: values.pop() for name, values in given.items() if len(values) == 1}


# How SGD, RMSProp or Adam is written: its settings by their words, each a column with a number for each parameter, and
# below them what no setting has.
Way = dict[str, Any]
Words = str | tuple[np.ndarray, ...]  # what a way is called: words, or columns of a way
PLACE, CORRECTED, BEGINS = "place of eps", "bias correction", "the first mean square"

_SOME = 32  # numbers of a parameter that are compared, those that differ most
_ROOT, _INSIDE = "added to the root √v̂", "inside the root, √(v̂ + eps)"
_BEFORE = "added to √v before its bias correction"
_DECOUPLING = "decoupled weight decay"
_COUPLED, _DECOUPLED = "coupled (added to the gradient, as Adam)", "decoupled (taken from the weight, as AdamW)"
_SWITCHES = {"amsgrad": "amsgrad", "nesterov": "Nesterov momentum", "centered": "centered"}
# Numbers that are tried in place of the reference's, by setting.
_KEPT = (0.0, 0.5, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99)
_SQUARES = (0.9, 0.95, 0.98, 0.99, 0.999, 0.9999)
_USUAL: dict[str, Sequence[float]] = {
    **{"β1": _KEPT, "momentum": _KEPT, "β2": _SQUARES, "α": _SQUARES},
    "eps": (1e-12, 1e-10, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1),
    DECAY: (0.0, 1e-5, 1e-4, 5e-4, 1e-3, 1e-2, 0.05, 0.1),
}


def _changes(way: Way, weights: np.ndarray, directions: np.ndarray, shares: np.ndarray) -> Iterator[np.ndarray]:
    """The changes of weights, a row for each parameter, after the updates that are `KEPT`."""
    w, m, v = weights.copy(), np.zeros_like(weights), np.full_like(weights, way[BEGINS])
    mean, highest = np.zeros_like(weights), np.zeros_like(weights)
    of_m, of_v = way.get("β1"), way.get("β2", way.get("α"))
    momentum, eps = way.get("momentum", 0.0), way.get("eps", 0.0)
    for t, (scale, base) in enumerate(zip(SCALES, RATES, strict=True), 1):
        rate, g = base * shares, scale * directions
        w, g = w - rate * way[_DECOUPLING] * way[DECAY] * w, g + (1 - way[_DECOUPLING]) * way[DECAY] * w
        root: Any = 1.0
        if of_v is not None:
            v, mean = of_v * v + (1 - of_v) * g * g, of_v * mean + (1 - of_v) * g
            highest, correction = np.maximum(highest, v), 1 - way[CORRECTED] * of_v**t
            square = np.where(way["amsgrad"], highest, v) / correction - way["centered"] * mean * mean
            square, least = np.maximum(square, 0), eps / (correction**0.5 if way[PLACE] == _BEFORE else 1.0)
            root = np.sqrt(square + least) if way[PLACE] == _INSIDE else np.sqrt(square) + least
        if of_m is not None:
            m = of_m * m + (1 - of_m) * g
            step = m / (1 - way[CORRECTED] * of_m**t) / root
        else:
            m = momentum * m + (1 - way["dampening"] * (t > 1)) * g / root  # as in torch
            step = np.where(way["nesterov"], g / root + momentum * m, m)
        w = w - rate * step
        if f"update {t}" in KEPT:
            yield w - weights


def _others(way: Way) -> Iterator[tuple[str, Words, Words, Way]]:
    """Every other way: of what, here, in the reference, and what is changed."""
    if "β2" in way:
        yield "Adam's bias correction", "missing", "m and v are divided by 1 − β^t", {CORRECTED: 0.0}
        b1, b2 = betas = way["β1"], way["β2"]
        yield "betas swapped: β1, β2", (b2, b1), betas, {"β1": b2, "β2": b1}
        for x, y in ((1 - b1, b2), (b1, 1 - b2), (1 - b1, 1 - b2)):
            yield "betas (β is the weight of the old state, not of the new)", (x, y), betas, {"β1": x, "β2": y}
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
    """The words for one parameter."""
    if isinstance(words, str):
        return words
    numbers = [column[index, 0] for column in words]
    return ", ".join(f"{one:g}" if isinstance(one, float) else str(one) for one in numbers)


def optimizer_causes(ours: Mapping[str, Arrays], theirs: Trace, names: NameMap, differing: list[str]) -> list[str]:
    """How the optimizers differ, for the parameters `differing`; empty if no known way fits."""
    made = map(names.rename, made_up({name: array.shape for name, array in theirs.gradients.items()}))
    sides = [*made, *(names.rename(theirs.alone[update]) for update in KEPT), *(ours[update] for update in KEPT)]
    settings = {word: paired(numbers, names) for word, numbers in theirs.settings.items()}
    rows = {}
    for name in [name for name in differing if name in settings.get(DECAY, {})]:
        flat = np.stack([np.ravel(side[name]).astype(np.float64) for side in sides])
        furthest = np.argsort(-np.abs(flat[-1] - flat[-1 - len(KEPT)]))
        rows[name] = flat[:, np.resize(furthest, _SOME)]
    if not rows or not {"β1", "α", "momentum"} & settings.keys():
        return []
    own = {word: np.array([[numbers.get(name, 0.0)] for name in rows]) for word, numbers in settings.items()}
    none = np.zeros((len(rows), 1))
    way = {**dict.fromkeys((*_SWITCHES, "dampening", _DECOUPLING), none), **own, PLACE: _ROOT, BEGINS: 0.0}
    way[CORRECTED] = float("β1" in way)
    rates = settings.get(RATE, {})
    shares = np.array([[rates.get(name, 1.0)] for name in rows]) / (max(rates.values(), default=1.0) or 1.0)
    weights, directions, *changes = np.stack(list(rows.values()), 1)

    def errors(way: Way, wanted: Sequence[np.ndarray]) -> np.ndarray:
        """How far a way is from the changes of each parameter."""
        with np.errstate(all="ignore"):
            pairs = zip(_changes(way, weights, directions, shares), wanted, strict=True)
            each = [np.linalg.norm(a - b, axis=1) / np.linalg.norm(b, axis=1) for a, b in pairs]
        return np.nan_to_num(np.max(each, 0), nan=np.inf)

    reference, here = changes[: len(KEPT)], changes[len(KEPT) :]
    left = (errors(way, reference) < FITS) & (errors(way, here) >= FITS)
    fits = [(errors({**way, **other}, here), words) for *words, other in _others(way)] if left.any() else []
    # A small parameter fits several ways: that of the most parameters comes first, then the closest.
    fits.sort(key=lambda one: (-(left & (one[0] < FITS)).sum(), one[0][left].min(initial=np.inf)))
    groups: dict[str, list[str]] = defaultdict(list)
    for error, (what, a, b) in fits:
        for index in np.flatnonzero(left & (error < FITS)):
            words = f"{what}: {_text(a, index)} here, {_text(b, index)} in the reference"
            groups[words].append(list(rows)[index])
        left &= error >= FITS
    return [f"{words} ({len(many)} parameters, first {many[0]})" for words, many in groups.items()]
