"""Find out which layers, inputs and limits of layers a comparison covers.

This module needs only NumPy.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from resnet_fn.config.wording import first_few, words_of
from resnet_fn.parity.compare import constants
from resnet_fn.parity.compare.dependence import BUILDS_OF_DEPENDENCE
from resnet_fn.parity.compare.labels import lines_of_labels
from resnet_fn.parity.compare.outputs import without_counterpart
from resnet_fn.parity.compare.probes import Probed
from resnet_fn.parity.compare.sides import Sides
from resnet_fn.parity.compare.stage import Absent, Stage
from resnet_fn.parity.pair.name_map import NameMap
from resnet_fn.parity.trace.data import IDLE_COUNTER, Probe, Run, Trace
from resnet_fn.parity.trace.derived import moves_evenly
from resnet_fn.parity.trace.difference import UNDECIDED, are_integers
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.probes import (
    FACTORS,
    FEWER_IDS,
    IDS,
    IN_TRAINING,
    MASKS,
    NET,
    TOO_LARGE,
    is_mask,
    without_repetition,
)
from resnet_fn.parity.trace.stages import CHANGE
from resnet_fn.parity.trace.tree import named_leaves

_NOT_COMPARED = (
    "not compared: the choice and augmentation of samples; your conversion of weights; your own "
    "{} and moving average, as far as the ladder does not get them"
)
_OWN = ("loss", "optimizer", "step", "schedule")

_NOT_EXERCISED = Absent.TOO_SHORT, Absent.CHAOTIC

_MOST = 6  # the most items in the printed line

# The two limits of each activation. Inputs below the first or above the second are computed by
# another formula.
_POSITIVE = (0.0, -math.inf)

_LIMITS = {
    "relu": _POSITIVE,
    "leakyrelu": _POSITIVE,
    "prelu": _POSITIVE,
    "elu": _POSITIVE,
    "celu": _POSITIVE,
    "selu": _POSITIVE,
    "relu6": (0.0, 6.0),
    "hardswish": (-3.0, 3.0),
    "hardsigmoid": (-3.0, 3.0),
}


@dataclasses.dataclass(frozen=True)
class Coverage:
    """What a comparison covers and what it does not cover."""

    not_compared: str = _NOT_COMPARED.format(", ".join(_OWN))  # one line
    compared: str = ""  # "for 5 batches of [8, 3, 32, 32] and 23 probes; 38 of 41 layers compared"
    not_exercised: Sequence[str] = ()  # a line each
    facts: Mapping[str, Any] = field(default_factory=dict)  # by name, for the JSON file

    @property
    def line(self) -> str:
        """One line with the first items of `not_exercised`, or an empty string."""
        items = [*self.not_exercised]
        if not items:
            return ""
        if len(items) > _MOST:
            kept = _MOST - 1
            more = len(items) - kept
            items = [*items[:kept], f"{more} more (--json has all)"]
        return f"not exercised: {'; '.join(items)}"


def coverage_of(sides: Sides, stages: Sequence[Stage], probed: Probed) -> Coverage:
    """Return the coverage of a comparison. What fails costs a line, and no other line."""
    lines, left_out = _lines(sides, stages, probed), Coverage.not_compared
    try:
        left_out = _not_compared(sides)
        summary, facts = _facts(sides, probed)
    except Exception as error:
        summary, facts = "", {}
        lines.insert(0, _failed("how much was compared", error))
    return Coverage(left_out, summary, lines, {**facts, "not compared": left_out})


def _not_compared(sides: Sides) -> str:
    """Return the line that names what is left out, without a loss or an optimizer of the user that
    the reference has.
    """
    plan = sides.reference.plan
    has = {"loss": plan.loss.custom, "optimizer": plan.optimizer.custom}
    names = ", ".join(name for name in _OWN if not has.get(name))
    return _NOT_COMPARED.format(names) + _of_few_builds(sides)


def _failed(what: str, error: Exception) -> str:
    return f"unknown because of an error: {what} ({words_of(error)})"


def _lines(sides: Sides, stages: Sequence[Stage], probed: Probed) -> list[str]:
    """Return a line for each thing that the comparison does not exercise."""
    port, reference, names = sides.port, sides.reference, sides.names
    shown = _shown(probed)
    parts: dict[str, Callable[[], Iterable[str]]] = {
        "small changes": lambda: _too_small(stages),
        "parts of stages": lambda: [line for stage in stages for line in stage.not_exercised],
        "constants": lambda: constants.lines(port, reference, names, stages),
        "layers": lambda: _of_layers(reference, names, shown),
        "gradients": lambda: _without_gradient(sides),
        "calls": lambda: _uncalled(reference),
        "counters": lambda: [*_counters(reference), *_moved(sides), *_state_of_port(sides)],
        "clipping": lambda: _unclipped(reference),
        "probes": lambda: _probes_left_out(port, reference, names, probed),
        "other inputs": lambda: _other_inputs(port, reference, shown),
        "masks": lambda: _masks_left_out(port, reference),
        "stages": lambda: [stage.note for stage in stages if stage.absent in _NOT_EXERCISED],
    }
    lines: list[str] = []
    for what, part in parts.items():
        try:
            lines += part()
        except Exception as error:  # first, because only a few lines are printed
            lines.insert(0, _failed(what, error))
    return lines


def _facts(sides: Sides, probed: Probed) -> tuple[str, dict[str, Any]]:
    """Return what was compared, in words and in numbers."""
    port, reference, names = sides.port, sides.reference, sides.names
    shown = _shown(probed)
    of_port = _layer_names(port)
    of_reference = _layer_names(reference)
    port_layers = {*of_port.values()}
    reference_layers = {*of_reference.values()}
    decided = [layer for layer in sides.layers if layer.output.verdict != UNDECIDED]
    seen = {of_port.get(layer.name, layer.name) for layer in decided}
    compared = seen & names.layers.keys()
    probes = sum(map(len, shown.values()))
    batches = _words_of_batches(reference)
    clipping = "none"
    if reference.plan.clip_norm:
        clipping = f"in {_clipped(reference)} of {len(reference.run.norms)} updates"
    facts = {
        "batches": batches,
        "probes": {name or "the net": sorted(titles) for name, titles in shown.items()},
        "probes left out": probed.left_out,
        "layers compared": len(compared),
        "layers in the port": len(port_layers),
        "layers in the reference": len(reference_layers),
        "without counterpart in the port": sorted(port_layers - names.layers.keys()),
        "without counterpart in the reference": sorted(
            reference_layers - set(names.layers.values())
        ),
        "never called": _never_called(reference),
        "without gradient": sorted(sides.without_gradient),
        "clipping": clipping,
    }
    summary = f"for {batches} and {probes} probes"
    if port_layers:
        summary += f"; {len(compared)} of {len(port_layers)} layers compared"
    return summary, facts


def _of_few_builds(sides: Sides) -> str:
    """Return what of the initial values is not compared, as text after `_NOT_COMPARED`."""
    if not sides.initialisation or len(sides.builds) >= BUILDS_OF_DEPENDENCE:
        return ""
    if len(sides.builds) > 1:
        return "; whether initial numbers depend on each other (both nets were built twice)"
    return "; of initial values all but mean, deviation and kurtosis (of one build each)"


def _shown(probed: Probed) -> dict[str, set[str]]:
    """Return the names of the probes that show something, by the port's layers' names."""
    shown = {layer: set(titles) for layer, titles in probed.agreed.items()}
    for finding in probed.findings:
        shown.setdefault(finding.layer, set()).add(finding.probe)
    return shown


def _without_gradient(sides: Sides) -> Iterator[str]:
    idle = sorted(sides.without_gradient)
    if idle:
        yield f"without gradient: {first_few(idle)}"


def _other_inputs(port: Trace, reference: Trace, shown: Mapping[str, set[str]]) -> Iterator[str]:
    if shown:
        return
    if port.probes and reference.probes:
        yield "other inputs: no probe decides"
    else:
        yield "other inputs: there are no probes"


def _uncalled(reference: Trace) -> Iterator[str]:
    never = _never_called(reference)
    if never:
        yield f"never called: {first_few(never)}"


def _counters(reference: Trace) -> Iterator[str]:
    """Yield a line for each counter that changes no output (`Run.moved`).

    Only few values of it were tried: what happens in every thousandth update is not seen.
    """
    run = reference.run
    for name in reference.buffers if run.after else ():
        start = run.start.get(name)
        if name in run.moved or start is None or start.size != 1 or not are_integers(start):
            continue
        if (run.after[-1][name] != start).any():
            yield f"{name}: {IDLE_COUNTER}"


def _moved(sides: Sides) -> Iterator[str]:
    """Yield a line for each counter of the reference that changes outputs, unless the port lacks it
    (`without_counterpart`): later values may do other things in the port.
    """
    run = sides.reference.run
    updates = len(run.after)
    lacking = without_counterpart(sides)
    for name, mode in run.moved.items():
        if not mode or name in lacking or (name in run.start and not _counts(run, name)):
            continue  # a number in an attribute has no array
        yield (
            f"{name}: updates move it, and other values change outputs; only those of {updates} "
            "updates were compared"
        )


def _counts(run: Run, name: str) -> bool:
    """Return whether an array is one number that updates move as a counter."""
    start = run.start[name]
    if start.size != 1 or np.iscomplexobj(start):
        return False
    if are_integers(start):
        return True
    values = [float(arrays[name].item()) for arrays in (run.start, *run.after)]
    # if it moves in each pass, the first step is longer: that of an evaluation and an update
    return moves_evenly(values) or moves_evenly(values[1:])


def _state_of_port(sides: Sides) -> Iterator[str]:
    """Yield a line for each array or number that the updates move in the port, and that the
    reference lacks: its outputs may depend on it later, such as in a schedule.
    """
    run = sides.port.run
    reference = sides.reference.run
    start = reference.start.keys() - sides.reference.counts
    known = {*sides.names.parameters, *start, *reference.moved, *sides.port.trainable}
    last = run.after[-1] if run.after else {}
    moved = {*run.moved} - known
    for name in last.keys() & run.start.keys() - known:
        if name.rpartition(".")[2] == "num_batches_tracked":  # of MindSpore's mint.nn, as of torch
            continue
        if not np.array_equal(last[name], run.start[name]):
            moved.add(name)
    for name in sorted(moved):
        yield f"{name}: updates move it in the port, and no later value was tried"


def _unclipped(reference: Trace) -> Iterator[str]:
    if reference.plan.clip_norm and not _clipped(reference):
        yield f"clipping: it acts in 0 of {len(reference.run.norms)} updates"


def _clipped(reference: Trace) -> int:
    """Return in how many updates clipping acts."""
    return sum(norm > reference.plan.clip_norm for norm in reference.run.norms)


def _too_small(stages: Sequence[Stage]) -> Iterator[str]:
    """Yield a line for the arrays whose change float32 does not show in any stage."""
    seen = set[str]()
    for stage in stages:
        for item in stage.differences:
            if item.id.change or stage.id.name == CHANGE.name:
                seen.add(item.name)
    hidden = dict.fromkeys(name for stage in stages for name in stage.too_small)
    if left := [name for name in hidden if name not in seen]:
        yield f"rate too small to see the change of {first_few(left)}"


def _layer_names(trace: Trace) -> dict[str, str]:
    """Map the title of each execution of a layer to the layer's name."""
    executions = itertools.chain(*trace.layers.values())
    return {execution.title: execution.name for execution in executions}


def _words_of_batches(trace: Trace) -> str:
    batches = trace.plan.batches
    leaves = named_leaves(batches[0][0], "")
    first = next(iter(leaves.values()), np.zeros(()))
    plural = "es" if len(batches) > 1 else ""
    return f"{len(batches)} batch{plural} of {list(first.shape)}"


def _never_called(trace: Trace) -> list[str]:
    """Return the layers with parameters in which no recorded layer ran."""
    never = []
    prefixes = tuple(f"{layer}." for layer in _layer_names(trace).values())
    saved = [name for name in trace.run.start if trace.buffers.get(name, True)]
    for owner in {name.rpartition(".")[0] for name in saved}:
        path = f"{owner}."
        if owner and not path.startswith(prefixes):
            never.append(owner)
    return sorted(never)


def _of_layers(reference: Trace, names: NameMap, shown: Mapping[str, set[str]]) -> Iterator[str]:
    """Yield what no input reached: limits of layers and functions, and data that may hide a fault.

    `shown` has the names of probes by the port's layers' names.
    """
    by_reference = {}
    for name, reference_name in names.layers.items():
        by_reference[reference_name] = shown.get(name, set())
    runs: dict[str, list[Layer]] = {}
    for layer in itertools.chain(*reference.layers.values()):
        runs.setdefault(layer.name, []).append(layer)
    for name, executions in runs.items():
        yield from _limits(executions, by_reference.get(name, set()))
    yield from reference.limits
    yield from _of_inputs(reference, shown.get(NET, set()))
    yield from _rows(reference, shown, by_reference)


def _masks_left_out(port: Trace, reference: Trace) -> list[str]:
    if not port.run.dropped or reference.run.dropped:
        return []
    left = first_few(port.unmasked)
    return [
        f"the places of dropout: the port has none for {left}, and the reference's trace has "
        "the update with all masks alone (compare both nets in one process)"
    ]


def _probes_left_out(
    port: Trace, reference: Trace, names: NameMap, probed: Probed
) -> Iterator[str]:
    left: dict[str, list[str]] = {}
    for title, why in probed.left_out.items():
        left.setdefault(why, []).append(title)
    for why, titles in left.items():
        yield f"{', '.join(without_repetition(titles))}: {why}"
    large: set[str | None] = set()
    for name, probes in reference.probes.items():
        if _has_large_ones(probes):
            large.add(name)
    for name, probes in port.probes.items():
        if _has_large_ones(probes):
            large.add(names.layers.get(name))
    if large:
        yield f"probes of {len(large)} layers: {TOO_LARGE}"


def _has_large_ones(probes: Mapping[str, Probe]) -> bool:
    return any(probe.error == TOO_LARGE for probe in probes.values())


def _limits(executions: Sequence[Layer], probes: set[str]) -> Iterator[str]:
    """Yield one line for each limit of a layer if no input is beyond it, for example "act (ReLU6):
    nothing above 6".
    """
    layer = executions[0]
    recorded = [execution.input for execution in executions if execution.input is not None]
    inputs = [x for x in recorded if x.size]
    clipping = layer.settings.get("min"), layer.settings.get("max")
    low, high = _LIMITS.get(layer.kind, clipping)
    if low is None or high is None or not inputs:
        return
    ends = [float(x.min()) for x in inputs]
    ends += [float(x.max()) for x in inputs]
    factors = [FACTORS[probe] for probe in probes & FACTORS.keys()]
    ends += [end * factor for end in ends for factor in factors]
    where = f"{layer.name} ({layer.class_name})"
    if min(ends) >= low:
        yield f"{where}: nothing below {low:g}"
    if max(ends) <= high:
        yield f"{where}: nothing above {high:g}"


def _of_inputs(reference: Trace, probes: set[str]) -> Iterator[str]:
    """Yield lines about data that may hide a fault: constant masks, symmetric matrices, classes
    without labels.
    """
    batches = reference.plan.batches
    for name, leaf in named_leaves(batches[0][0], "inputs").items():
        every = np.stack(_of_all_batches(reference, name))
        if not _is_varied(name, leaf, probes):
            if every.size and _is_constant(every):
                yield f"{name}: always {every.flat[0]}"
            elif leaf.ndim > 1 and _has_equal_samples(every):
                yield f"{name}: the same in all samples"
        if _symmetric(every):
            yield f"{name}: always symmetric"
    start = reference.run.start
    for name in reference.constants:
        saved = reference.buffers.get(name, True)
        if saved and name in start and _symmetric(start[name]):
            yield f"{name}: symmetric"
    yield from lines_of_labels(reference)


def _is_varied(name: str, leaf: np.ndarray, probes: set[str]) -> bool:
    """Return whether probes of the net change this input, and not by a factor alone."""
    if is_mask(name, leaf):
        return MASKS in probes
    single = {IDS, FEWER_IDS} & probes  # a net with one input
    ends = f" ({name})"
    return bool(single) or any(title.removesuffix(IN_TRAINING).endswith(ends) for title in probes)


def _has_equal_samples(every: np.ndarray) -> bool:
    """Return whether all samples [batches, n, …] are equal."""
    samples = every.reshape(-1, *every.shape[2:])
    return len(samples) > 1 and bool((samples == samples[:1]).all())


def _symmetric(array: np.ndarray) -> bool:
    """Return whether square matrices are symmetric, and not constant."""
    if array.ndim < 2:
        return False
    rows, columns = array.shape[-2:]
    if rows != columns or rows < 2:
        return False
    transposed = array.swapaxes(-1, -2)
    return bool((array == transposed).all()) and not _is_constant(array)


def _is_constant(array: np.ndarray) -> bool:
    return not np.ptp(array.astype(np.float64))


def _of_all_batches(trace: Trace, name: str) -> list[np.ndarray]:
    return [named_leaves(inputs, "inputs")[name] for inputs, _ in trace.plan.batches]


def _rows(
    reference: Trace, shown: Mapping[str, set[str]], by_reference: Mapping[str, set[str]]
) -> Iterator[str]:
    """Report unused rows of embeddings.

    `shown` has probes by the port's layers' names, `by_reference` by the reference's.
    """
    of_net = shown.get(NET, set())
    for layer in reference.layers["eval"]:
        if layer.kind != "embedding" or layer.call:
            continue
        if layer.input is None or not layer.parameters:
            continue
        looked_up = [layer.input]
        rows = layer.parameters[0][1][0]
        inputs, _ = reference.plan.batches[0]
        for name, leaf in named_leaves(inputs, "inputs").items():
            if leaf.shape == layer.input.shape and (leaf == layer.input).all():
                looked_up += _of_all_batches(reference, name)
        ids = np.concatenate([array.ravel() for array in looked_up])
        count = len(np.unique(ids))
        titles = by_reference.get(layer.name, set()) | of_net
        # one probe for each input that is looked up
        every_id = any(title.startswith(IDS) for title in titles)
        if count < rows and not every_id:
            yield f"{layer.name}: {rows - count} of {rows} rows are never looked up"
