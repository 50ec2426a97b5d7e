"""Why Adam's or RMSProp's state or update differs: each way of writing it is computed from the recorded arrays.

One way must give MindSpore's arrays and another the reference's; the hints name in what the two differ.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from resnet_fn.layers.difference import relative_error
from resnet_fn.parity.optimizer_settings import DECAY
from resnet_fn.parity.origins import FITS
from resnet_fn.parity.trace import Arrays, Trace

_AS_WELL = 10.0  # up to so many times the least error also fits: a small eps shows in a few small gradients only
_LEAST, _MOST = 8, 4096  # numbers of a parameter that are compared: fewer fit anything

_CORRECTED = "m and v are divided by 1 − β^t"
_CORRECTIONS = {_CORRECTED: (True, True), "is missing": (False, False), "of v is missing": (True, False)}
_OUTSIDE = "added to the root √v̂"
_INSIDE = "inside the root, √(v̂ + eps),"
_BEFORE = "added to √v before its bias correction"
_EPSILONS = (1e-8, 1e-6, 1e-5, 1e-7, 1e-10, 1e-12, 1e-4, 1e-3, 1e-2, 1e-1)


class First(NamedTuple):
    """One parameter's first update of Adam: float64 vectors of at most _MOST values."""

    weight: np.ndarray
    after: np.ndarray
    gradient: np.ndarray
    momentum: np.ndarray
    variance: np.ndarray
    mean: np.ndarray | float = 0.0  # of the gradient, in centred RMSProp


class Way(NamedTuple):
    """How an update is written: its bias correction, and the place and value of its eps."""

    correction: str
    place: str
    epsilon: float


class Side(NamedTuple):
    """One side's first update, with its β1 and β2, the weight decay in the gradient by parameter, and the variance's
    initial value: 0, or 1 as in nn.RMSProp.
    """

    parameters: dict[str, First]
    rate: float
    beta1: float
    beta2: float
    coupled: dict[str, float]
    begins: int


def adam_causes(ours: Trace, theirs: Mapping[str, Arrays], rate: float) -> list[str]:
    """How both sides' Adam or RMSProp differ; empty if no known way fits, or for another optimizer.

    `theirs` has the reference's "start", "after", "clipped" and its optimizer's state, by our names; `rate` is its
    learning rate in the first update.
    """
    here = {"start": ours.start, "after": ours.after[0], "clipped": ours.clipped, **ours.state}
    sides: list[Mapping[str, Arrays]] = [here, theirs]
    if all("mean square" in side for side in sides):
        sides = [_as_adam(side, ours.settings.get(DECAY, {})) for side in sides]
    elif not all({"momentum", "variance"} <= set(side) for side in sides):
        return []
    a, b = map(_firsts, sides)
    names = [name for name in a if name in b]
    first, second = _side(a, names, ours.rates[0]), _side(b, names, rate)
    if first is None or second is None:
        return []
    pairs = itertools.product(_fitting(first), _fitting(second))  # of all that fit, those with the most in common
    ways = min(pairs, key=lambda pair: sum(x != y for x, y in zip(*pair, strict=True)), default=None)
    decoupled = [_rests(side, way)[0] for side, way in zip((first, second), ways, strict=True)] if ways else [{}, {}]
    hints = _beta_hints(first, second) + (_way_hints(*ways) if ways else [])
    if first.begins != second.begins:
        hints.insert(0, f"the mean square begins at {first.begins} here, at {second.begins} in the reference")
    return hints + _decay_hints(names, (first.coupled, second.coupled), decoupled)


def _as_adam(side: Mapping[str, Arrays], decays: Mapping[str, float]) -> dict[str, Arrays]:
    """RMSProp as Adam without momentum. Both weight decays agree: else their stage would differ first."""
    gradients = {name: g + decays.get(name, 0.0) * side["start"][name] for name, g in side["clipped"].items()}
    return {**side, "momentum": gradients, "variance": side["mean square"]}


def _firsts(side: Mapping[str, Arrays]) -> dict[str, First]:
    parts = [side[part] for part in ("start", "after", "clipped", "momentum", "variance")]
    means = side.get("mean gradient", {})
    return {
        name: First(*(_some(part[name]) for part in parts))._replace(mean=_some(means[name]) if name in means else 0.0)
        for name, gradient in side["clipped"].items()
        if all(name in part for part in parts) and gradient.size >= _LEAST
    }


def _some(array: np.ndarray) -> np.ndarray:
    flat = np.ravel(array)
    return flat[:: max(1, -(-flat.size // _MOST))].astype(np.float64)


def _side(parameters: Mapping[str, First], names: Sequence[str], rate: float) -> Side | None:
    """m = (1 − β1) (g + d w) and v = (1 − β2) (g + d w)², β the same for all parameters and d for each."""
    parameters = {name: parameters[name] for name in names if parameters[name].gradient.any()}
    coupled, firsts, seconds, begins = {}, [], [], 0
    for name, one in parameters.items():
        columns = np.stack([one.gradient, one.weight], 1)
        solution = np.linalg.lstsq(columns, one.momentum, rcond=None)[0]
        share, of_weight = map(float, solution)
        if not share or relative_error(columns @ solution, one.momentum) > FITS:
            return None
        if abs(of_weight) * np.linalg.norm(one.weight) < FITS * abs(share) * np.linalg.norm(one.gradient):
            of_weight = 0.0
        square = (one.gradient + of_weight / share * one.weight) ** 2
        second = float(np.vdot(one.variance, square) / max(float(np.vdot(square, square)), 1e-300))
        if relative_error(second * square, one.variance) > FITS:
            rest, begins = 1 - square, 1
            second = 1 - float(np.vdot(one.variance - square, rest)) / float(np.vdot(rest, rest))
            if relative_error(1 - second * rest, one.variance) > FITS:
                return None
        coupled[name] = of_weight / share
        firsts.append(share)
        seconds.append(second)
    if not firsts:
        return None
    new_m, new_v = float(np.median(firsts)), float(np.median(seconds))
    return Side(parameters, rate, 1 - new_m, 1 - new_v, coupled, begins) if new_v > 0 else None  # else v never moves


def _fitting(side: Side) -> list[Way]:
    """All ways that fit about as well as the best one."""
    ways = [Way(*one) for one in itertools.product(_CORRECTIONS, (_OUTSIDE, _INSIDE, _BEFORE), _EPSILONS)]
    errors = {way: _rests(side, way)[1] for way in ways}
    allowed = min(FITS, _AS_WELL * min(errors.values()))
    return [way for way, error in errors.items() if error <= allowed]


def _rests(side: Side, way: Way) -> tuple[dict[str, float], float]:
    """The decoupled weight decay by parameter, and the largest relative error that this way leaves in an update."""
    decays, worst = {}, 0.0
    corrects_m, corrects_v = _CORRECTIONS[way.correction]
    of_m, of_v = 1 - side.beta1 if corrects_m else 1.0, 1 - side.beta2 if corrects_v else 1.0
    for name, one in side.parameters.items():
        m, v = one.momentum / of_m, np.maximum(one.variance / of_v - one.mean**2, 0)
        epsilon = way.epsilon / math.sqrt(of_v) if way.place == _BEFORE else way.epsilon
        root = np.sqrt(v + epsilon) if way.place == _INSIDE else np.sqrt(v) + epsilon
        step = (one.weight - one.after) / side.rate if side.rate else np.zeros_like(m)
        rest = step - m / root
        square = float(np.vdot(one.weight, one.weight))
        decay = float(np.vdot(rest, one.weight)) / square if square else 0.0
        size = float(np.linalg.norm(step)) or 1.0
        if abs(decay) * math.sqrt(square) < FITS * size:
            decay = 0.0
        decays[name] = decay
        worst = max(worst, float(np.linalg.norm(rest - decay * one.weight)) / size)
    return decays, worst


def _beta_hints(ours: Side, theirs: Side) -> list[str]:
    a, b = ours[2:4], theirs[2:4]
    if np.allclose(1 - np.array(a), 1 - np.array(b), rtol=FITS):
        return []
    words = f"β1 {a[0]:.4g} and β2 {a[1]:.4g} here, {b[0]:.4g} and {b[1]:.4g} in the reference"
    if np.allclose(1 - np.array(a[::-1]), 1 - np.array(b), rtol=FITS):
        return [f"betas swapped: {words}"]
    inverted = any(math.isclose(1 - one, other, rel_tol=FITS) for one, other in zip(a, b, strict=True))
    return [f"betas: {words}" + "; β is the weight of the old state, not of the new" * inverted]


def _way_hints(ours: Way, theirs: Way) -> list[str]:
    a, b = ours.correction, theirs.correction
    words = f"{b} in the reference; here {a}" if a == _CORRECTED else f"{a} here; in the reference {b}"
    hints = {
        f"Adam's bias correction {words}": a != b,
        f"eps is {ours.place} here, {theirs.place} in the reference": ours.place != theirs.place,
        f"eps {ours.epsilon:g} here, {theirs.epsilon:g} in the reference": ours.epsilon != theirs.epsilon,
    }
    return [hint for hint, differs in hints.items() if differs]


def _decay_hints(
    names: Sequence[str], coupled: Sequence[Mapping[str, float]], decoupled: Sequence[Mapping[str, float]]
) -> list[str]:
    """Parameters grouped by their weight decay on both sides, if it differs."""
    groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for name in names:
        here, there = ((c.get(name, 0.0), d.get(name, 0.0)) for c, d in zip(coupled, decoupled, strict=True))
        if not np.allclose(here, there, rtol=0.05, atol=1e-12):
            groups[name.rpartition(".")[2], _decay(*here), _decay(*there)].append(name)
    return [
        f"weight decay on {leaf}: {here} here, {there} in the reference ({len(members)} parameters, first {members[0]})"
        for (leaf, here, there), members in groups.items()
    ]


def _decay(coupled: float, decoupled: float) -> str:
    parts = [f"{coupled:.3g} coupled (added to the gradient, as Adam)"] * bool(coupled)
    parts += [f"{decoupled:.3g} decoupled (taken from the weight, as AdamW)"] * bool(decoupled)
    return " and ".join(parts) or "none"
