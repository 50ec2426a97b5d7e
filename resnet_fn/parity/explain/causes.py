"""Find causes of the first stage that differs.

A cause that is computed must reproduce our net's numbers.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from resnet_fn.parity.compare.allowed import rounding_of
from resnet_fn.parity.compare.layers import LayerDifference
from resnet_fn.parity.compare.notes import attempt, sharing_notes
from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.explain.optimizer_causes import optimizer_causes
from resnet_fn.parity.pair import name_map
from resnet_fn.parity.pair.name_map import NameMap
from resnet_fn.parity.trace import stages, tree
from resnet_fn.parity.trace.data import Trace, Wanted
from resnet_fn.parity.trace.derived import flat
from resnet_fn.parity.trace.difference import DIFFERS, FITS, relative_error
from resnet_fn.parity.trace.layout import layout
from resnet_fn.parity.trace.source import Source
from resnet_fn.parity.trace.stages import StageId
from resnet_fn.parity.trace.tree import Arrays, named_leaves


@dataclasses.dataclass(frozen=True)
class StageCase:
    """The first stage that differs, and the data for finding its causes."""

    stage: Stage
    layers: Sequence[LayerDifference]
    ours: Trace
    theirs: Trace
    names: NameMap
    source: Source  # what the reference can still be asked

    def differing(self) -> list[str]:
        """Return the names of the arrays that differ, of any worker, each once."""
        differing = (item for item in self.stage.differences if item.verdict == DIFFERS)
        return list(dict.fromkeys(item.id.name for item in differing))


def explain(case: StageCase, search: bool = True) -> list[str]:
    """Return one line for each cause.

    Without causes, return any reason why a wanted search was not made, else [].
    """
    computed = STAGE_CAUSES.get(case.stage.id)
    causes = attempt(_searched, case) if search else []
    causes += attempt(computed, case) if computed else []
    return causes or (search and _not_searched(case)) or []


_SAME = 1e-5  # relative error up to which two learning rates, in float32, are equal

# the largest rounding of an array that is searched for; with more rounding, any change fits
_SURE = 1e-3

# The stage of the net's outputs for each stage that a search of forward passes can explain.
_FORWARD = {
    stages.EVAL_FORWARD: stages.EVAL_FORWARD,
    stages.EVAL_LAYERS: stages.EVAL_FORWARD,
    stages.TRAIN_FORWARD: stages.TRAIN_FORWARD,
    stages.TRAIN_LAYERS: stages.TRAIN_FORWARD,
}


def _searched(case: StageCase) -> list[str]:
    if not case.source.can_run or _not_searched(case) is not None:
        return []
    from resnet_fn.parity.explain.torch_search import make_searcher  # imports torch

    wanted = _wanted(case, _FORWARD.get(case.stage.id, case.stage.id))
    lines: list[str] = case.source.run(lambda rerun: make_searcher(rerun)(wanted))
    return lines


def _not_searched(case: StageCase) -> list[str] | None:
    """Return None if the stage can be searched, else a list with at most one line: why it cannot be
    searched.
    """
    theirs, whole = case.theirs, case.stage.id in (stages.LOSS, stages.GRADIENTS)
    if (
        case.stage.failed
        or not (whole or case.stage.id in _FORWARD)
        or not theirs.framework.startswith("PyTorch")
    ):
        return []
    if theirs.task.precision == "fp16":
        return ["no cause is searched for in half precision; compare without --precision fp16"]
    if whole and theirs.task.accumulate > 1:
        return [
            "no cause is searched for in the loss and gradients of micro-batches; compare with "
            "--accumulate 1"
        ]
    if not case.source.can_run and theirs.file:
        return [
            f"for a cause, add --reference {theirs.file.partition(',')[0]}:FUNCTION, the file that "
            "was recorded"
        ]
    return None


def _wanted(case: StageCase, stage: StageId) -> Wanted:
    """Return the arrays of our net that a search tries to reproduce with the reference."""
    ours, theirs, names = case.ours.run, case.theirs, case.names
    if stage in (stages.LOSS, stages.GRADIENTS):
        raw, known = (
            theirs.run.gradients,
            names.rename(theirs.run.gradients, name_map.GRADIENTS),
        )
        results = {
            stages.LOSS.name: (
                np.asarray(ours.losses[:1]),
                theirs.rounding[stages.LOSS].get(stages.LOSS.name, 0.0),
            )
        }
        errors = theirs.rounding.get(stages.GRADIENTS, {})
        for name in [name for name in ours.gradients if name in known]:
            rounding = rounding_of(names, errors, name, raw, known[name])
            if rounding < _SURE:  # leaves out gradients that depend on ties
                results[name] = ours.gradients[name], rounding
        gradients = lambda values: names.rename(values, name_map.GRADIENTS)  # noqa: E731
        return Wanted(
            stage,
            {},
            results,
            lambda values: {**gradients(values), stages.LOSS.name: values[stages.LOSS.name]},
        )
    mode = stage.mode
    here, there = ({one.title: one for one in side.layers[mode]} for side in (case.ours, theirs))
    layers = {}
    for one in case.layers:
        if one.mode != mode:
            continue
        a, b, rounding = (
            here[one.name].output,
            there[one.theirs].output,
            there[one.theirs].output_rounding,
        )
        assert a is not None
        assert b is not None
        given, a, same = a.ndim, layout(b, a)(a), one.output.verdict != DIFFERS
        apart = a.shape != b.shape or relative_error(a, b) > one.output.tolerance
        # Leave out layers that are compared with the next activation, or have another number of
        # axes.
        if rounding < _SURE and apart != same and a.ndim == given:
            layers[one.theirs] = (a, max(rounding, one.output.relative if same else 0.0))
    results, roundings = {}, theirs.rounding.get(stage, {})
    if theirs.task.accumulate == 1:
        mine, others = (
            one.eval_outputs if mode == "eval" else one.train_outputs[0]
            for one in (ours, theirs.run)
        )
        for name, own in (tree.paired_outputs(mine, others) or {}).items():
            if roundings.get(name, 0.0) < _SURE:
                results[name] = mine[own], roundings.get(name, 0.0)
    return Wanted(stage, layers, results, lambda value: named_leaves(value, "logits"))


def _fit(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Return the factor c that brings c · b closest to a, and the relative error of c · b."""
    square = float(np.vdot(b, b))
    c = float(np.vdot(a, b)) / square if square else math.nan
    return c, relative_error(c * b, a) if math.isfinite(c) else math.inf


def _multiple(
    what: str,
    ours: np.ndarray,
    theirs: np.ndarray,
    known: Mapping[str, float],
    fits: float = FITS,
    same: float = FITS,
) -> list[str]:
    """Return a text if `ours` is `theirs` times a factor other than 1.

    `known` maps reasons for factors to factors.
    """
    factor, error = _fit(ours, theirs)
    if error >= fits or abs(factor - 1) <= max(same, error):
        return []
    reasons = [
        f": {words}" for words, one in known.items() if math.isclose(factor, one, rel_tol=FITS)
    ]
    return [f"{what} is {factor:.6g} times the reference's{''.join(reasons)}"]


def _gradients(case: StageCase) -> list[str]:
    ours, theirs = (
        case.ours.run.gradients,
        case.names.rename(case.theirs.run.gradients, name_map.GRADIENTS),
    )
    names, parts = [name for name in ours if name in theirs], case.theirs.task.accumulate
    known = {f"the sum over {parts} micro-batches instead of their mean": parts}
    factor = _multiple("every gradient", flat(ours, names), flat(theirs, names), known)
    return [*factor, *sharing_notes(case.names, case.ours.tied)]


def another_clipping(clipped: Arrays, parts: Sequence[Arrays], limit: float) -> list[str]:
    """Return each mistake in clipping to `limit` that results in `clipped`.

    `parts` has micro-batches' gradients.
    """
    names = list(parts[0])
    mean = {name: np.mean([part[name] for part in parts], axis=0) for name in names}
    seen, whole = flat(clipped, names), flat(mean, names)

    def clip(a: np.ndarray) -> np.ndarray:
        return a * min(1.0, limit / max(float(np.linalg.norm(a)), 1e-30))

    candidates = {
        "no clipping here": whole,
        "each tensor is clipped by its own norm": flat(
            {name: clip(value) for name, value in mean.items()}
        ),
        "values are clipped instead of the norm": np.clip(whole, -limit, limit),
    }
    if len(parts) > 1:
        candidates["each micro-batch is clipped before the mean; clip once, after it"] = np.mean(
            [clip(flat(part, names)) for part in parts], axis=0
        )
        candidates["the sum over micro-batches is clipped, not their mean"] = clip(
            whole * len(parts)
        )
    return [words for words, value in candidates.items() if relative_error(seen, value) < FITS]


def _clipping(case: StageCase) -> list[str]:
    limit, trace = case.theirs.task.clip_norm, case.theirs.run
    parts = [
        case.names.rename(part, name_map.GRADIENTS) for part in trace.parts or [trace.gradients]
    ]
    return another_clipping(case.ours.run.clipped, parts, limit) if limit else []


def _rate(case: StageCase) -> list[str]:
    """Return a line if our learning rates are one update off, and a line if they are a multiple of
    the reference's.
    """
    a, b = np.array(case.ours.run.rates), np.array(case.theirs.run.rates)
    words = "the learning rate is off by one update: ours is one"
    shifts = {
        f"{words} ahead of the reference's": (a[:-1], b[1:]),
        f"{words} behind the reference's": (a[1:], b[:-1]),
    }
    apart = len(a) > 1 and not np.allclose(a, b, rtol=_SAME)
    hints = [words for words, pair in shifts.items() if apart and np.allclose(*pair, rtol=_SAME)]
    return [*hints, *_multiple("the learning rate", a, b, {}, _SAME, _SAME)]


def _optimizer(case: StageCase) -> list[str]:
    alone = case.ours.optimizer_alone
    return optimizer_causes(alone, case.theirs, case.names, case.differing())


def _length(case: StageCase) -> list[str]:
    """Return a line if our first update is the reference's first update times a factor other than
    1.
    """
    ours, there, rates = case.ours.run, case.theirs.run, case.ours.run.rates
    start, first = case.names.rename(there.start), case.names.rename(there.after[0])
    names = [name for name in case.names.rename(there.gradients) if name in ours.start]
    change = flat(ours.after[0], names) - flat(ours.start, names)
    known = {}
    if len(rates) > 1 and rates[0]:
        known[f"it used the second update's learning rate, {rates[1]:.6g}; off by one update"] = (
            rates[1] / rates[0]
        )
    # An error of 1 % passes, because the sign of Adam's update is random where the gradient is near
    # 0.
    return _multiple(
        "the first update",
        change,
        flat(first, names) - flat(start, names),
        known,
        0.01,
    )


def _statistics(case: StageCase) -> list[str]:
    """Describe running statistics that keep a larger or smaller fraction of the old value than the
    reference's.
    """
    if case.theirs.task.accumulate > 1:
        return []
    start, first = (
        case.names.rename(arrays) for arrays in (case.theirs.run.start, case.theirs.run.after[0])
    )
    set_here = {layer.name for layer in case.ours.layers["eval"] if "momentum" in layer.settings}
    momenta = {layer.name: layer.settings.get("momentum") for layer in case.theirs.layers["eval"]}
    hints = []
    for name in [name for name in case.differing() if name.rpartition(".")[0] not in set_here]:
        if new := momenta.get(case.names.sources(name)[0].rpartition(".")[0]):
            old, mixed = start[name].astype(np.float64), first[name].astype(np.float64)
            batch = (mixed - (1 - new) * old) / new
            kept, error = _fit(case.ours.run.after[0][name] - batch, old - batch)
            inverted = "momentum inverted: " if math.isclose(kept, new, abs_tol=0.01) else ""
            if error < 0.01 and not math.isclose(kept, 1 - new, abs_tol=0.01):
                hints.append(
                    f"{name}: {inverted}keeps {kept:.2f} of the old value, the reference "
                    f"{1 - new:.2f}"
                )
    return hints


# The functions that find causes in the recordings of both nets, without a search.
STAGE_CAUSES: dict[StageId, Callable[[StageCase], list[str]]] = {
    stages.GRADIENTS: _gradients,
    stages.NORM: _clipping,
    stages.CLIPPED: _clipping,
    stages.RATE: _rate,
    stages.STATISTICS: _statistics,
    stages.ALONE: _optimizer,
    stages.CHANGE: _length,
}
