"""What a divergence's numbers say about its cause: each candidate is computed and must fit to be named."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from resnet_fn.config.recipe import Recipe
from resnet_fn.parity.compare import DIFFERS, Stage, relative_error
from resnet_fn.parity.traces.batches import Arrays, Tree, leaves
from resnet_fn.parity.traces.trace import Trace

_FITS = 1e-3  # relative error up to which a candidate explains what is seen


def _fit(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """The c that brings c · b closest to a, and the relative error that is left."""
    square = float(np.vdot(b, b))
    c = float(np.vdot(a, b)) / square if square else 0.0
    return c, relative_error(c * b, a)


def loss_hints(stage: Stage, logits: np.ndarray, labels: np.ndarray, smoothing: float) -> None:
    """Try other definitions of the loss on the reference's logits."""
    first = stage.differences[0]
    scores = logits - logits.max(1, keepdims=True)
    log = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    own = -log[np.arange(len(labels)), labels]
    every, classes = -log.sum(1), logits.shape[1]
    candidates = {
        f"label smoothing spread over the other C − 1 = {classes - 1} classes, the reference's over all {classes}": (
            (1 - smoothing) * own + smoothing * (every - own) / max(classes - 1, 1)
        ).mean(),
        f"no label smoothing here, {smoothing:g} in the reference": own.mean(),
        "the loss takes logits as log-probabilities": -logits[np.arange(len(labels)), labels].mean(),
    }
    for words, value in candidates.items():
        if math.isclose(float(value), first.ours, rel_tol=1e-5) and not math.isclose(value, first.theirs, rel_tol=1e-5):
            stage.hints.append(words)


def sum_hints(stage: Stage, labels: Tree, outputs: Arrays, parts: int) -> None:
    """Is one side's loss the sum of what the other's is the mean of: over samples, labels, or all numbers?"""
    first = stage.differences[0]
    each = [leaf for _, leaf in leaves(labels)]
    counts = {len(leaf): "the sum over the batch" for leaf in each if np.ndim(leaf)}
    counts |= {leaf.size: "the sum over all labels" for leaf in each if leaf.size not in counts}
    counts |= {leaf.size: "the sum over all outputs" for leaf in outputs.values() if leaf.size not in counts}
    for count, words in counts.items():
        count = count // parts if words != "the sum over all outputs" else count
        if count > 1 and math.isclose(first.ours, count * first.theirs, rel_tol=1e-5):
            stage.hints.append(f"{words} instead of the mean")
        elif count > 1 and math.isclose(count * first.ours, first.theirs, rel_tol=1e-5):
            stage.hints.append(f"the mean instead of {words}, which the reference has")


def gradient_hints(stage: Stage, ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray], parts: int) -> None:
    """Is one side a constant multiple of the other?"""
    a = np.concatenate([np.ravel(ours[name]) for name in theirs])
    b = np.concatenate([np.ravel(theirs[name]) for name in theirs])
    factor, left = _fit(a, b)
    if left < _FITS and abs(factor - 1) > _FITS:
        words = f"every gradient is {factor:.6g} times the reference's"
        if math.isclose(factor, parts, rel_tol=_FITS) and parts > 1:
            words += f": the sum over {parts} micro-batches instead of their mean"
        stage.hints.append(words)


def relu_hints(stage: Stage, sign_changes: Sequence[tuple[str, int]]) -> None:
    """Layers that agree may still feed a ReLU with values that round to different sides of 0; its gradient jumps."""
    changed = [(name, count) for name, count in sign_changes if count]
    if changed:
        stage.hints.append(
            f"every layer agrees, but {sum(count for _, count in changed)} values round to different sides of 0 "
            f"(first in {changed[0][0]}), where a ReLU's gradient jumps; the differences are larger than that explains"
        )


def clip_hints(stage: Stage, ours: Trace, parts: Sequence[Mapping[str, np.ndarray]], recipe: Recipe) -> None:
    """Does clipping every micro-batch, every tensor or every value, instead of the mean's norm, explain it?

    Args:
        stage: where hints go.
        ours: MindSpore's side.
        parts: the reference's gradients of each micro-batch of the first update, unclipped.
        recipe: the clipping.
    """
    limit = recipe.clip_norm
    names = list(parts[0])
    mean = {name: np.mean([part[name] for part in parts], axis=0) for name in names}
    seen = np.concatenate([np.ravel(ours.clipped[name]) for name in names])

    def vector(values: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.concatenate([np.ravel(values[name]) for name in names])

    def clip(a: np.ndarray) -> np.ndarray:
        return a * min(1.0, limit / max(float(np.linalg.norm(a)), 1e-30))

    candidates = {
        "no clipping here": vector(mean),
        "each tensor is clipped by its own norm": vector({name: clip(mean[name]) for name in names}),
        "values are clipped instead of the norm": np.clip(vector(mean), -limit, limit),
    }
    if len(parts) > 1:
        candidates["each micro-batch is clipped before the mean; clip once, after it"] = sum(
            (clip(vector(part)) for part in parts), start=np.zeros(len(seen))
        ) / len(parts)
        candidates["the sum over micro-batches is clipped, not their mean"] = clip(vector(mean) * len(parts))
    for words, value in candidates.items():
        if relative_error(seen, value) < _FITS:
            stage.hints.append(words)


def rate_hints(stage: Stage, ours: Sequence[float], theirs: Sequence[float]) -> None:
    """Is the learning rate the reference's, shifted by updates or scaled?"""
    a, b = np.array(ours), np.array(theirs)
    for shift in (1, -1):
        pairs = (a[:-1], b[1:]) if shift == 1 else (a[1:], b[:-1])
        if len(pairs[0]) and np.allclose(*pairs, rtol=1e-5) and not np.allclose(a, b, rtol=1e-5):
            side = "ahead of" if shift == 1 else "behind"
            stage.hints.append(f"the learning rate is off by one update: ours is one {side} the reference's")
    factor, left = _fit(a, b)
    if left < 1e-5 and abs(factor - 1) > 1e-5:
        stage.hints.append(f"the learning rate is {factor:.6g} times the reference's")


def momentum_hints(stage: Stage, ours: Trace, theirs: Mapping[str, np.ndarray]) -> None:
    """Is the difference a multiple of the weight itself: weight decay where the reference has none, or none here?"""
    groups: dict[str, list[str]] = {}
    for item in stage.differences:
        if item.verdict != DIFFERS:
            continue
        weight = ours.start[item.name]
        rest = np.asarray(ours.state["momentum"][item.name], np.float64) - theirs[item.name]
        decay, left = _fit(rest, weight)
        if left < 0.02:  # the rest is small beside both momenta, so rounding shows in it
            more = "more" if decay > 0 else "less"
            leaf = item.name.rsplit(".", 1)[-1]
            groups.setdefault(f"weight decay on {leaf}: {abs(decay):.3g} {more} than the reference's", []).append(
                item.name
            )
    for words, names in groups.items():
        stage.hints.append(f"{words} ({len(names)} parameters, first {names[0]})")


def update_hints(stage: Stage, ours: Trace, theirs: Mapping[str, np.ndarray]) -> None:
    """Did the first update take a step of the right direction and the wrong length?"""
    names, rates = [name for name in theirs if name in ours.start], ours.rates
    a = np.concatenate([np.ravel(ours.after[0][name] - ours.start[name]) for name in names]).astype(np.float64)
    b = np.concatenate([np.ravel(theirs[name]) for name in names]).astype(np.float64)
    factor, left = _fit(a, b)
    if left < 0.01 and abs(factor - 1) > _FITS:
        words = f"the first update is {factor:.6g} times the reference's"
        if len(rates) > 1 and math.isclose(factor, rates[1] / rates[0], rel_tol=_FITS):
            words += f": it used the second update's learning rate, {rates[1]:.6g}; off by one update"
        stage.hints.append(words)


def nesterov_hints(stage: Stage, ours: Trace, theirs: Mapping[str, Arrays], rate: float) -> None:
    """Does one side look ahead? A first update is rate · momentum, with Nesterov's rate · (1 + μ) · momentum.

    Args:
        stage: where hints go.
        ours: MindSpore's side.
        theirs: the reference's "start", "after" and "momentum", by the MindSpore net's names.
        rate: the reference's learning rate of the first update.
    """
    here = _of_momentum(ours.start, ours.after[0], ours.state["momentum"], ours.rates[0])
    there = _of_momentum(theirs["start"], theirs["after"], theirs["momentum"], rate)
    if here is None or there is None:
        return
    if not math.isclose(min(here, there), 1, rel_tol=_FITS) or max(here, there) < 1 + _FITS:
        return
    ahead, plain = ("here", "in the reference") if here > there else ("in the reference", "here")
    stage.hints.append(f"Nesterov momentum {ahead} (μ {max(here, there) - 1:.3g}), plain momentum {plain}")


def _of_momentum(start: Arrays, after: Arrays, momentum: Arrays, rate: float) -> float | None:
    """How many times rate · momentum an update is; None where it is not a multiple."""
    names = [name for name in momentum if name in start]
    step = np.concatenate([np.ravel(start[name] - after[name]) for name in names]).astype(np.float64)
    buffer = np.concatenate([np.ravel(momentum[name]) for name in names]).astype(np.float64)
    factor, left = _fit(step, rate * buffer)
    return factor if left < 0.01 else None


def statistics_hints(
    stage: Stage,
    ours: Trace,
    start: Mapping[str, np.ndarray],
    first: Mapping[str, np.ndarray],
    momenta: Mapping[str, float],
) -> None:
    """What share of the old statistics does each BatchNorm keep?

    Args:
        stage: where hints go.
        ours: MindSpore's side.
        start, first: the reference's statistics before and after the first update, by the MindSpore net's names.
        momenta: torch's momentum of each statistic, by the MindSpore net's name.
    """
    groups: dict[str, list[str]] = {}
    for item in stage.differences:
        if item.verdict != DIFFERS or item.name not in momenta:
            continue
        old, mixed = start[item.name].astype(np.float64), first[item.name].astype(np.float64)
        new = momenta[item.name]
        batch = (mixed - (1 - new) * old) / new
        kept, left = _fit(ours.after[0][item.name] - batch, old - batch)
        if left < 0.01 and not math.isclose(kept, 1 - new, abs_tol=0.01):
            words = (
                f"momentum inverted: keeps {kept:.2f} of the old value"
                if math.isclose(kept, new, abs_tol=0.01)
                else (f"keeps {kept:.2f} of the old value")
            )
            groups.setdefault(f"{words}, the reference {1 - new:.2f}", []).append(item.name)
    for words, names in groups.items():
        stage.hints.append(f"{names[0]}: {words} ({len(names)} statistics so)")
