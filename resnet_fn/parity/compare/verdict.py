"""Decide whether two traces of the same task agree.

`verdict` is a function of data. Where it needs more evidence, its result has a request. The caller
asks the reference's source, and calls again. There are at most three calls:

1. without evidence, which may request the rounding with flipped ties,
2. with the answer about ties, which may request the rounding of probes,
3. with the answer about probes, which is final.

A call that needs nothing more goes on with the next step itself.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from resnet_fn.config.hints import few, first_line
from resnet_fn.parity.compare import allowed
from resnet_fn.parity.compare.coverage import Coverage, coverage_of
from resnet_fn.parity.compare.layers import LayerDifference, compare_layers
from resnet_fn.parity.compare.notes import (
    constant_notes,
    settings_notes,
    sharing_notes,
    with_frozen_norms,
)
from resnet_fn.parity.compare.outputs import buffers_without_counterpart
from resnet_fn.parity.compare.probes import (
    ComparedProbes,
    Probed,
    compare_probes,
    judge_probes,
)
from resnet_fn.parity.compare.rules import RULES, compare_stages
from resnet_fn.parity.compare.sides import Sides, order_of, sides_of
from resnet_fn.parity.compare.stage import Absent, Stage
from resnet_fn.parity.pair.name_map import NameMap
from resnet_fn.parity.trace.data import RATE, Rounding, Run, Trace
from resnet_fn.parity.trace.difference import DIFFERS, UNDECIDED, Difference
from resnet_fn.parity.trace.environment import environment_notes
from resnet_fn.parity.trace.probes import AskedProbes
from resnet_fn.parity.trace.source import ProbeRounding
from resnet_fn.parity.trace.stages import EVAL_FORWARD, GRADIENTS, TRAIN_FORWARD

_NOT_EXERCISED = Absent.TOO_SHORT, Absent.CHAOTIC


class Request(NamedTuple):
    """What a verdict still needs to know of the reference."""

    tie_width: float | None = None  # the rounding with flipped ties of this width
    probes: AskedProbes | None = None  # the rounding of these probes


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The result of a comparison."""

    stages: Sequence[Stage]  # in the order of a training step
    # the compared layers in execution order, first in evaluation mode, then in training mode, then
    # with masks
    layers: Sequence[LayerDifference]
    names: NameMap  # the reference's parameter and layer for each of the port's
    settings: Sequence[str]  # those that differ, whether or not the numbers show it
    # the number of ReLU inputs within rounding of 0; 0 unless gradients differ and all layers agree
    ties: int = 0
    # ties of functions that explain differences: "net.py:12, long: 3 ties"
    tied: Sequence[str] = ()
    # what was changed or left out to make the nets comparable, one line each
    changes: Sequence[str] = ()
    # versions and variables that differ, one line each
    environment: Sequence[str] = ()
    precision: str = "float32"  # the precision in which the reference's rounding was measured
    compiled: bool = True  # whether MindSpore's side was compiled
    # whether the reference's rounding was measured; without it, tolerances decide
    measured: bool = True
    # mode → number of the port's layers that ran, compared or not
    ran: Mapping[str, int] = dataclasses.field(default_factory=dict)
    # outputs, losses and gradients within their tolerance that differ by more than rounding
    # explains, worst first
    beyond: Sequence[Difference] = ()
    probed: Probed = dataclasses.field(default_factory=Probed)  # the comparison on changed inputs
    coverage: Coverage = dataclasses.field(default_factory=Coverage)  # what the comparison covers
    rounding: Rounding = dataclasses.field(default_factory=dict)  # the reference's, as it was used
    request: Request | None = None  # what is still unknown; None if the verdict is final
    compared_probes: ComparedProbes | None = None  # of a verdict with a request

    @property
    def agrees(self) -> bool:
        """Whether no stage differs and no stage is undecided."""
        return not any(stage.verdict in (DIFFERS, UNDECIDED) for stage in self.stages)

    @property
    def lent(self) -> list[Difference]:
        """The arrays that pass by a wide bound only (`Difference.is_lent`)."""
        return [item for stage in self.stages for item in stage.differences if item.is_lent]

    @property
    def first_stage(self) -> Stage | None:
        """The first stage that differs."""
        return next((stage for stage in self.stages if stage.verdict == DIFFERS), None)

    @property
    def undecided(self) -> list[Stage]:
        """The stages that are undecided."""
        return [stage for stage in self.stages if stage.verdict == UNDECIDED]

    @property
    def counts(self) -> tuple[int, int]:
        """How many arrays are undecided, and how many there are in all stages."""
        every = [one for stage in self.stages for one in (*stage.differences, *stage.left_out)]
        return sum(one.verdict == UNDECIDED for one in every), len(every)

    @property
    def first_computed(self) -> Stage | None:
        """The first stage that differs, apart from the stages of initial values."""
        computed = (stage for stage in self.stages if not stage.overwritten)
        return next((stage for stage in computed if stage.verdict == DIFFERS), None)

    @property
    def first_gradient(self) -> Difference | None:
        """The first gradient that differs."""
        gradients = (stage for stage in self.stages if stage.id.of_first_batch == GRADIENTS)
        return next((stage.first for stage in gradients if stage.first), None)

    @property
    def first_layer(self) -> LayerDifference | None:
        """The first layer in `layers` whose output differs."""
        return next((layer for layer in self.layers if layer.output.verdict == DIFFERS), None)

    def with_causes(self, causes: Sequence[str]) -> "Verdict":
        """Return the verdict with hints at the first computed stage that differs."""
        computed = self.first_computed
        stages = [
            dataclasses.replace(stage, hints=[*stage.hints, *causes])
            if stage is computed
            else stage
            for stage in self.stages
        ]
        return dataclasses.replace(self, stages=stages)


@dataclasses.dataclass(frozen=True)
class Evidence:
    """What is known of the reference beside its trace."""

    tie_widths: tuple[float, ...] = ()  # the widths of ties of which the source has an answer
    earlier: Verdict | None = None  # an earlier verdict, whose request has been answered
    flipped: tuple[Rounding, int] | None = None  # the rounding with flipped ties; their number
    probes: ProbeRounding | None = None  # the rounding of the probes that were asked for
    not_measured: str = ""  # why the rounding of some or all of the probes is unknown


def verdict(
    port: Trace,
    reference: Trace,
    names: NameMap,
    evidence: Evidence = Evidence(),
    initialisation: bool = True,
) -> Verdict:
    """Compare two traces of the same task.

    Args:
        port, reference: the traces of both sides.
        names: the pairing of the port's parameters and layers with the reference's.
        evidence: what is known beside the traces. The first call needs `tie_widths` only.
        initialisation: whether to compare the initial parameters.

    Returns:
        A verdict. If it has a request, call again with the answer and with this verdict as
        `earlier`.
    """
    earlier = evidence.earlier
    if earlier is None:
        return _by_traces(port, reference, names, evidence, initialisation)
    if earlier.compared_probes is None:
        result = _with_flipped_ties(earlier, port, reference, evidence.flipped, initialisation)
        return _and_probes(result, port, reference, evidence)
    return _with_probes(earlier, port, reference, earlier.compared_probes, evidence)


def _by_traces(
    port: Trace, reference: Trace, names: NameMap, evidence: Evidence, initialisation: bool
) -> Verdict:
    """Return the verdict without an answer: it requests flipped ties, or goes on with probes."""
    result = _first_verdict(port, reference, names, initialisation)
    result = _with_ties(result, port, reference, initialisation)
    width = _wanted_width(result, evidence.tie_widths)
    if width is not None:
        return dataclasses.replace(result, request=Request(tie_width=width))
    return _and_probes(result, port, reference, evidence)


def _and_probes(result: Verdict, port: Trace, reference: Trace, evidence: Evidence) -> Verdict:
    """Return the verdict on ties with probes: it requests their rounding, or is final."""
    result = dataclasses.replace(result, beyond=_beyond_rounding(result))
    evaluation = next(stage for stage in result.stages if stage.id == EVAL_FORWARD)
    forward = evaluation.verdict != DIFFERS
    try:
        compared = compare_probes(port, reference, result.names.layers, forward)
    except Exception as error:
        return _without_probes(result, error)
    if asked := compared.asked:
        request = Request(probes=asked)
        return dataclasses.replace(result, compared_probes=compared, request=request)
    return _with_probes(result, port, reference, compared, evidence)


def _first_verdict(port: Trace, reference: Trace, names: NameMap, initialisation: bool) -> Verdict:
    """Return the verdict by the rounding that the reference's trace has, without probes."""
    layers = compare_layers(port.layers, reference.layers, names.layers)
    order, rounding = order_of(port, names), reference.rounding
    sides = sides_of(port, reference, names, rounding, order, layers, initialisation)
    apart = {one.name for one in layers if one.output.verdict == DIFFERS}
    same = {one.name for one in layers if one.mode == "train"} - apart
    with_frozen = with_frozen_norms(port.layers), with_frozen_norms(reference.layers)
    settings = [
        *settings_notes(*with_frozen, names.layers, same),
        *sharing_notes(names, port.tied),
        *constant_notes(port.attributes, reference.initial, names),
    ]
    modes = port.environment.get("mode"), reference.environment.get("mode")
    return Verdict(
        compare_stages(sides),
        layers,
        names,
        settings,
        changes=_changes(sides),
        environment=environment_notes(port.environment, reference.environment),
        precision="float16" if reference.plan.precision == "fp16" else "float32",
        compiled="pynative" not in modes,
        measured=bool(rounding),
        ran={mode: len(one) for mode, one in port.layers.items()},
        rounding=rounding,
    )


def _changes(sides: Sides) -> list[str]:
    """Return what was changed or left out to make both sides comparable, one line each."""
    port, reference, names = sides.port, sides.reference, sides.names
    lines = list(dict.fromkeys([*reference.notes, *port.notes]))
    if (RATE in port.optimizer_settings) != (RATE in reference.optimizer_settings):
        lines.append(
            "both optimizers get the recipe's learning rates; rates that only one has are not "
            "compared"
        )
    paired = {*names.parameters, *itertools.chain(*port.tied)}
    if left := [name for name in port.trainable if name not in paired]:
        lines.append(f"left out, since --map gives no counterpart: {few(left)}")
    lines += [line for _, line in buffers_without_counterpart(sides)]
    terms = "which trains each term separately, so that norms and updates differ"
    added = ((name, one) for name, one in names.parameters.items() if one.added)
    lines += [f"{name}: {one} in the reference, {terms}" for name, one in added]
    start, after = port.run.start, port.run.after
    idle = [name for name in sides.arrays.all if after and name in sides.at_most_decayed]
    if decayed := [name for name in idle if (after[0][name] != start[name]).any()]:
        words = "this step applies weight decay without a gradient, but torch does not"
        lines.append(f"{words}: {few(decayed)}")
    return lines


def _wanted_width(result: Verdict, widths: Sequence[float]) -> float | None:
    """Return the width of the ties that may explain gradients that differ, or None.

    The cause may be ReLU inputs whose sign float32 cannot decide. The rounding of float16 includes
    these inputs.
    """
    same_layers = result.first_layer is None and result.first_gradient is not None
    if not (same_layers and widths and result.precision == "float32"):
        return None
    outputs = [layer.output for layer in result.layers if layer.mode == "train"]
    needed = allowed.tie_width(outputs)
    return next((width for width in widths if width >= needed), max(widths))


def _with_ties(result: Verdict, port: Trace, reference: Trace, initialisation: bool) -> Verdict:
    """Return the verdict apart from what ties of functions such as `long` change, if it differs."""
    first = result.first_computed
    if reference.ties is None or first is None:
        return result
    differs = [stage.id for stage in result.stages if stage.verdict == DIFFERS]
    forward = any((one.name, one.mode) == (TRAIN_FORWARD.name, "train") for one in differs)
    rounding = allowed.with_ties(reference.rounding, reference.ties.rounding, forward)
    stages = _compared_again(result, port, reference, rounding, initialisation, reference.ties.run)
    if any(stage.id == first.id and stage.verdict == DIFFERS for stage in stages):
        return result  # ties are not the reason
    tied = reference.ties.lines
    return dataclasses.replace(result, stages=stages, rounding=rounding, tied=tied)


def _compared_again(
    result: Verdict,
    port: Trace,
    reference: Trace,
    rounding: Rounding,
    initialisation: bool,
    otherwise: Run | None,
) -> list[Stage]:
    """Return the stages, compared with another rounding or with ties."""
    order = order_of(port, result.names)
    given = (port, reference, result.names, rounding, order, result.layers, initialisation)
    known = None if otherwise else {stage.id: stage for stage in result.stages}
    return compare_stages(sides_of(*given, otherwise), known)


def _with_flipped_ties(
    result: Verdict,
    port: Trace,
    reference: Trace,
    flipped: tuple[Rounding, int] | None,
    initialisation: bool,
) -> Verdict:
    """Return the verdict by the rounding that includes flipped ties, if it is known."""
    result = dataclasses.replace(result, request=None)
    if flipped is None:
        return result
    rounding = allowed.with_flipped_ties(result.rounding, flipped[0])
    otherwise = reference.ties.run if reference.ties and result.tied else None
    stages = _compared_again(result, port, reference, rounding, initialisation, otherwise)
    return dataclasses.replace(result, stages=stages, ties=flipped[1], rounding=rounding)


def _beyond_rounding(result: Verdict) -> list[Difference]:
    """Return the arrays within their tolerance that rounding does not explain, worst first."""
    if not result.rounding or result.precision != "float32":
        return []
    named = {rule.id for rule in RULES if rule.names_beyond}
    items = [one for stage in result.stages if stage.id in named for one in stage.differences]
    return sorted((one for one in items if one.beyond), key=lambda one: -one.beyond)


def _with_probes(
    result: Verdict,
    port: Trace,
    reference: Trace,
    compared: ComparedProbes,
    evidence: Evidence,
) -> Verdict:
    """Return the final verdict, with what probes show and the comparison covers."""
    result = dataclasses.replace(result, request=None, compared_probes=None)
    # Probes whose rounding is missing are judged by the tolerance alone.
    if evidence.not_measured:
        left_out = {**compared.left_out, "the rounding of probes": evidence.not_measured}
        compared = compared._replace(left_out=left_out)
    try:
        probed = judge_probes(compared, evidence.probes or {})
        result = dataclasses.replace(result, probed=probed)
        idle = sides_of(port, reference, result.names, {}, ()).without_gradient
        coverage = coverage_of(
            port, reference, result.names, result.layers, result.stages, probed, idle
        )
        short = [one.note for one in result.stages if one.absent in _NOT_EXERCISED]
        coverage = dataclasses.replace(coverage, not_exercised=[*coverage.not_exercised, *short])
    except Exception as error:
        return _without_probes(result, error)
    return dataclasses.replace(result, coverage=coverage)


def _without_probes(result: Verdict, error: Exception) -> Verdict:
    """Return the verdict, which does not need probes, with a line about an error."""
    line = f"probes and coverage failed ({type(error).__name__}: {first_line(error)})"
    return dataclasses.replace(result, changes=[*result.changes, line])
