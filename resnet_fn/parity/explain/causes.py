"""Find causes of the first stage that differs.

A cause that is computed must reproduce the port's numbers.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from resnet_fn.parity.compare.allowed import rounding_of_built
from resnet_fn.parity.compare.layers import LayerDifference
from resnet_fn.parity.compare.notes import NoCause, attempt, attribute_names, sharing_notes
from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.explain.factors import words_of_factor
from resnet_fn.parity.explain.optimizer_causes import optimizer_causes
from resnet_fn.parity.explain.wanted import Wanted
from resnet_fn.parity.pair import name_map
from resnet_fn.parity.pair.name_map import NameMap
from resnet_fn.parity.trace import stages, tree
from resnet_fn.parity.trace.data import Trace
from resnet_fn.parity.trace.derived import MEASURED_ARRAYS, flat
from resnet_fn.parity.trace.difference import DIFFERS, FITS, relative_error
from resnet_fn.parity.trace.layout import layout
from resnet_fn.parity.trace.packed import packed_outputs
from resnet_fn.parity.trace.returned import named_outputs
from resnet_fn.parity.trace.source import Source
from resnet_fn.parity.trace.stages import StageId
from resnet_fn.parity.trace.tree import Arrays


@dataclasses.dataclass(frozen=True)
class StageCase:
    """The first stage that differs, and the data for finding its causes."""

    stage: Stage
    layers: Sequence[LayerDifference]
    port: Trace
    reference: Trace
    names: NameMap
    source: Source  # what the reference can still be asked

    def differing(self) -> list[str]:
        """Return the names of the arrays that differ, of any worker, each once."""
        differing = (item for item in self.stage.differences if item.verdict == DIFFERS)
        return list(dict.fromkeys(item.id.name for item in differing))


def explain(case: StageCase, search: bool = True) -> list[str]:
    """Return one line for each cause, and for what failed or stopped (`NoCause`)."""
    computed = STAGE_CAUSES.get(case.stage.id)
    causes = attempt(_searched, case) if search else []
    causes += attempt(computed, case) if computed else []
    return causes


def why_not_searched(case: StageCase) -> list[str]:
    """Return one line with the reason why no cause was searched for, or [] if there is none."""
    return [NoCause(line) for line in _not_searched(case) or []]


_NEAR = 0.05  # relative error up to which the factors of two whole updates are equal

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
    reference = case.reference
    whole = case.stage.id in (stages.LOSS, stages.GRADIENTS)
    has_search = whole or case.stage.id in _FORWARD
    if case.stage.failed or not has_search:
        return []
    if not reference.framework.startswith("PyTorch"):
        return []
    if reference.plan.precision == "fp16":
        return ["no cause is searched for in half precision; compare without --precision fp16"]
    if whole and reference.plan.accumulate > 1:
        return [
            "no cause is searched for in the loss and gradients of micro-batches; compare with "
            "--accumulate 1"
        ]
    if not case.source.can_run and reference.file:
        function = f"{reference.file_name}:FUNCTION"
        return [f"for a cause, add --reference {function}, the file that was recorded"]
    return None


def _wanted(case: StageCase, stage: StageId) -> Wanted:
    """Return the arrays of the port that a search tries to reproduce with the reference."""
    if stage in (stages.LOSS, stages.GRADIENTS):
        return _wanted_gradients(case, stage)
    port = case.port.run
    reference = case.reference
    mode = stage.mode
    port_layers = {layer.title: layer for layer in case.port.layers[mode]}
    reference_layers = {layer.title: layer for layer in reference.layers[mode]}
    packs = any(layer.valid is not None for layer in reference_layers.values())
    layers = {}
    for layer in case.layers:
        if layer.mode != mode:
            continue
        reference_layer = reference_layers[layer.reference]
        a = port_layers[layer.name].output
        b = reference_layer.output
        rounding = reference_layer.output_rounding
        assert a is not None
        assert b is not None
        axes = a.ndim
        a = layout(b, a)(a)
        item = layer.output
        same = item.verdict != DIFFERS
        limit = item.tolerance
        apart = a.shape != b.shape or relative_error(a, b) > limit
        if packs and (a.shape != b.shape or reference_layer.valid is not None):
            continue  # the search runs the layer on packed data
        # Leave out layers that are compared with the next activation, or have another number of
        # axes.
        if rounding < _SURE and apart != same and a.ndim == axes:
            relative = item.relative if same else 0.0
            layers[layer.reference] = (a, max(rounding, relative))
    results = {}
    roundings = reference.rounding.get(stage, {})
    if reference.plan.accumulate == 1:
        port_arrays, reference_arrays = (
            dict(MEASURED_ARRAYS[stage](run)) for run in (port, reference.run)
        )
        port_arrays = packed_outputs(port_arrays, reference_arrays)
        paired = tree.paired_outputs(port_arrays, reference_arrays) or {}
        for name, port_name in paired.items():
            rounding = roundings.get(name, 0.0)
            if rounding < _SURE:
                results[name] = port_arrays[port_name], rounding
    attributes = {}
    for name, source in attribute_names(case.port.attributes, case.names).items():
        attributes[source] = case.port.attributes[name]
    return Wanted(stage, layers, results, named_outputs, attributes)


def _wanted_gradients(case: StageCase, stage: StageId) -> Wanted:
    """Return the loss and the gradients, of which a search tries to reproduce the port's."""
    port = case.port.run
    reference = case.reference
    names = case.names
    loss = stages.LOSS.name
    raw = reference.run.gradients
    known = names.rename(raw, name_map.GRADIENT_KIND)
    of_loss = reference.rounding[stages.LOSS].get(loss, 0.0)
    results = {loss: (np.asarray(port.losses[:1]), of_loss)}
    errors = reference.rounding.get(stages.GRADIENTS, {})
    for name, gradient in port.gradients.items():
        if name not in known:
            continue
        rounding = rounding_of_built(names, errors, name, raw, known[name])
        if rounding < _SURE:  # leaves out gradients that depend on ties
            results[name] = gradient, rounding

    def renamed(values: Arrays) -> Arrays:
        return {**names.rename(values, name_map.GRADIENT_KIND), loss: values[loss]}

    return Wanted(stage, {}, results, renamed)


def _fit(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Return the factor c that brings c · b closest to a, and the relative error of c · b."""
    square = float(np.vdot(b, b))
    c = float(np.vdot(a, b)) / square if square else math.nan
    if not math.isfinite(c):
        return c, math.inf
    return c, relative_error(c * b, a)


def _multiple(
    what: str,
    port: np.ndarray,
    reference: np.ndarray,
    known: Mapping[str, float],
    fits: float = FITS,
    same: float = FITS,
) -> list[str]:
    """Return a text if `port` is `reference` times a factor other than 1.

    `known` maps reasons for factors to factors.
    """
    factor, error = _fit(port, reference)
    if error >= fits or abs(factor - 1) <= max(same, error):
        return []
    reasons = ""
    for reason, number in known.items():
        if math.isclose(factor, number, rel_tol=FITS):
            reasons += f": {reason}"
    return [f"{what} is {factor:.6g} times the reference's{reasons}"]


def _gradients(case: StageCase) -> list[str]:
    port = case.port.run.gradients
    reference = case.names.rename(case.reference.run.gradients, name_map.GRADIENT_KIND)
    names = [name for name in port if name in reference]
    parts = case.reference.plan.accumulate
    known = {f"the sum over {parts} micro-batches instead of their mean": parts}
    factor = _multiple("every gradient", flat(port, names), flat(reference, names), known)
    return [*factor, *sharing_notes(case.names, case.port.tied)]


def another_clipping(clipped: Arrays, parts: Sequence[Arrays], limit: float) -> list[str]:
    """Return each mistake in clipping to `limit` that results in `clipped`.

    `parts` has micro-batches' gradients.
    """
    names = list(parts[0])
    mean = {}
    for name in names:
        mean[name] = np.mean([part[name] for part in parts], axis=0)
    seen = flat(clipped, names)
    whole = flat(mean, names)

    def clip(a: np.ndarray) -> np.ndarray:
        length = max(float(np.linalg.norm(a)), 1e-30)
        return a * min(1.0, limit / length)

    each = {}
    for name, value in mean.items():
        each[name] = clip(value)
    candidates = {
        "no clipping in the port": whole,
        "each tensor is clipped by its own norm": flat(each),
        "values are clipped instead of the norm": np.clip(whole, -limit, limit),
    }
    if len(parts) > 1:
        clipped_parts = [clip(flat(part, names)) for part in parts]
        mistake = "each micro-batch is clipped before the mean; clip once, after it"
        candidates[mistake] = np.mean(clipped_parts, axis=0)
        mistake = "the sum over micro-batches is clipped, not their mean"
        candidates[mistake] = clip(whole * len(parts))
    return [mistake for mistake, value in candidates.items() if relative_error(seen, value) < FITS]


def _loss(case: StageCase) -> list[str]:
    """Return a line if the loss and all gradients are the reference's times one factor."""
    port = case.port.run
    reference = case.reference.run
    gradients = case.names.rename(reference.gradients, name_map.GRADIENT_KIND)
    names = [name for name in port.gradients if name in gradients]
    port_gradients = flat(port.gradients, names)
    reference_gradients = flat(gradients, names)
    factor, error = _fit(port_gradients, reference_gradients)
    loss = port.losses[0]
    if error > FITS or not math.isclose(loss, factor * reference.losses[0], rel_tol=FITS):
        return []
    outputs = reference.train_outputs[0]
    shapes = []
    for array in outputs.values():
        shapes.append(array.shape)
    multiplier = words_of_factor(factor, shapes)
    if multiplier == "1":  # near 1, which explains nothing
        return []
    return [f"the loss and every gradient are the reference's multiplied by {multiplier}"]


def _clipping(case: StageCase) -> list[str]:
    limit = case.reference.plan.clip_norm
    if not limit:
        return []
    run = case.reference.run
    parts = []
    for gradients in run.parts or [run.gradients]:
        parts.append(case.names.rename(gradients, name_map.GRADIENT_KIND))
    return another_clipping(case.port.run.clipped, parts, limit)


def _rate(case: StageCase) -> list[str]:
    """Return a line if the port's learning rates are one update off, and a line if they are a
    multiple of the reference's.
    """
    a = np.array(case.port.run.rates)
    b = np.array(case.reference.run.rates)
    line = "the learning rate is off by one update: the port's is one"
    shifts = {
        f"{line} ahead of the reference's": (a[:-1], b[1:]),
        f"{line} behind the reference's": (a[1:], b[:-1]),
    }
    apart = False
    if len(a) > 1:
        apart = not np.allclose(a, b, rtol=_SAME)
    hints = []
    for line, pair in shifts.items():
        if apart and np.allclose(*pair, rtol=_SAME):
            hints.append(line)
    return [*hints, *_multiple("the learning rate", a, b, {}, _SAME, _SAME)]


def _optimizer(case: StageCase) -> list[str]:
    alone = case.port.optimizer_alone
    return optimizer_causes(alone, case.reference, case.names, case.differing())


def _length(case: StageCase) -> list[str]:
    """Return a line if the port's first update is the reference's first update times a factor other
    than 1.
    """
    port = case.port.run
    reference = case.reference.run
    rates = port.rates
    start = case.names.rename(reference.start)
    first = case.names.rename(reference.after[0])
    trained = case.names.rename(reference.gradients)
    names = [name for name in trained if name in port.start]
    change = flat(port.after[0], names) - flat(port.start, names)
    right = flat(first, names) - flat(start, names)
    known = {}
    if len(rates) > 1 and rates[0] and _is_one_ahead(case, names):
        own_rate, next_rate = rates[:2]
        reason = f"it used the second update's learning rate, {next_rate:.6g}; off by one update"
        known[reason] = next_rate / own_rate
    # An error of 1 % passes, because the sign of Adam's update is random where the gradient is near
    # 0.
    return _multiple("the first update", change, right, known, 0.01)


def _is_one_ahead(case: StageCase, names: Sequence[str]) -> bool:
    """Return whether the port's second update, too, is as far from the reference's as with the
    next update's learning rate: not by the factor of the first update.
    """
    run = case.port.run
    rates = run.rates
    reference_run = case.reference.run
    if len(run.after) < 2 or not rates[1]:
        return False
    port = [run.start, *run.after]
    reference = [
        case.names.rename(arrays) for arrays in (reference_run.start, *reference_run.after[:2])
    ]
    first, second = (_factor_of_update(port, reference, index, names) for index in (0, 1))
    # both updates start with almost the same weights, but not quite
    if math.isclose(first, second, rel_tol=_NEAR):
        return False
    return len(rates) < 3 or math.isclose(second, rates[2] / rates[1], rel_tol=_NEAR)


def _factor_of_update(
    port: Sequence[Arrays], reference: Sequence[Arrays], index: int, names: Sequence[str]
) -> float:
    """Return the factor between the changes of two runs in the update after `index` updates."""
    changes = []
    for arrays in (port, reference):
        before = flat(arrays[index], names)
        after = flat(arrays[index + 1], names)
        changes.append(after - before)
    factor, _ = _fit(*changes)
    return factor


def _statistics(case: StageCase) -> list[str]:
    """Describe running statistics that keep a larger or smaller fraction of the old value than the
    reference's.
    """
    if case.reference.plan.accumulate > 1:
        return []
    start = case.names.rename(case.reference.run.start)
    first = case.names.rename(case.reference.run.after[0])
    port_layers = case.port.layers["eval"]
    layers = case.reference.layers["eval"]
    set_in_port = {layer.name for layer in port_layers if "momentum" in layer.settings}
    momenta = {layer.name: layer.settings.get("momentum") for layer in layers}
    hints = []
    for name in case.differing():
        if name.rpartition(".")[0] in set_in_port:
            continue
        source = case.names.sources(name)[0]
        if new := momenta.get(source.rpartition(".")[0]):
            old = start[name].astype(np.float64)
            mixed = first[name].astype(np.float64)
            batch = (mixed - (1 - new) * old) / new
            port = case.port.run.after[0][name]
            kept, error = _fit(port - batch, old - batch)
            inverted = "momentum inverted: " if math.isclose(kept, new, abs_tol=0.01) else ""
            if error < 0.01 and not math.isclose(kept, 1 - new, abs_tol=0.01):
                hints.append(
                    f"{name}: {inverted}keeps {kept:.2f} of the old value, the reference "
                    f"{1 - new:.2f}"
                )
    return hints


# The functions that find causes in the recordings of both nets, without a search.
STAGE_CAUSES: dict[StageId, Callable[[StageCase], list[str]]] = {
    stages.LOSS: _loss,
    stages.GRADIENTS: _gradients,
    stages.NORM: _clipping,
    stages.CLIPPED: _clipping,
    stages.RATE: _rate,
    stages.STATISTICS: _statistics,
    stages.ALONE: _optimizer,
    stages.CHANGE: _length,
}
