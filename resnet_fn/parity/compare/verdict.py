"""Decide whether two traces of the same task agree.

`decide` is a function of data, and is read from top to bottom. Where both traces are not enough, it
yields a request. `verdict` asks the reference's source, and sends the answer back. `decide` is a
generator so that it calls no reference: a test can answer the requests without a module. What
undecided arrays do to a stage is in `stage`; what undecided stages do to the verdict is in
`result`.
"""

import dataclasses
from collections.abc import Generator, Sequence
from typing import NamedTuple

from resnet_fn.config.wording import words_of
from resnet_fn.parity.compare import allowed, remarks
from resnet_fn.parity.compare.comparing import beyond_rounding, compare_stages
from resnet_fn.parity.compare.coverage import coverage_of
from resnet_fn.parity.compare.probes import Probed, compare_probes, judge_probes
from resnet_fn.parity.compare.result import Verdict
from resnet_fn.parity.compare.sides import Sides, both_sides
from resnet_fn.parity.pair.name_map import NameMap
from resnet_fn.parity.trace.data import Rounding, Trace
from resnet_fn.parity.trace.difference import DIFFERS, Difference
from resnet_fn.parity.trace.probes import AskedProbes
from resnet_fn.parity.trace.source import ProbeAnswer, Source, StoredSource
from resnet_fn.parity.trace.stages import EVAL_FORWARD, TRAIN_FORWARD


class Request(NamedTuple):
    """What a comparison needs to know of the reference beside its trace."""

    tie_width: float | None = None  # the rounding with flipped ties of this width
    probes: AskedProbes | None = None  # the rounding of these probes


class Evidence(NamedTuple):
    """The answer to a request."""

    flipped: tuple[Rounding, int] | None = None  # the rounding with flipped ties; their number
    probes: ProbeAnswer = ProbeAnswer({})


def verdict(
    port: Trace,
    reference: Trace,
    names: NameMap,
    source: Source | None = None,
    initialisation: bool = True,
) -> Verdict:
    """Compare two traces of the same task.

    Args:
        port, reference: the traces of both sides.
        names: the pairing of the port's parameters and layers with the reference's.
        source: what the reference can still be asked; by default what its trace has.
        initialisation: whether to compare the initial parameters.
    """
    source = source or StoredSource(reference)
    deciding = decide(port, reference, names, source.tie_widths, initialisation)
    try:
        request = next(deciding)
        while True:
            request = deciding.send(_answer(request, source))
    except StopIteration as end:
        result: Verdict = end.value
        return result


def _answer(request: Request, source: Source) -> Evidence:
    if request.tie_width is not None:
        return Evidence(flipped=source.flipped_ties(request.tie_width))
    return Evidence(probes=source.probe_rounding(request.probes or {}) or ProbeAnswer({}))


def decide(
    port: Trace,
    reference: Trace,
    names: NameMap,
    tie_widths: Sequence[float] = (),
    initialisation: bool = True,
) -> Generator[Request, Evidence, Verdict]:
    """Compare two traces; yield a request where they are not enough, and take the answer.

    `tie_widths` are the widths of ties of which the reference's source has an answer.
    """
    sides = both_sides(port, reference, names, initialisation)
    result = _by_traces(sides)
    result = _apart_from_step_ties(result, sides)
    width = _wanted_width(result, tie_widths)
    if width is not None:
        evidence = yield Request(tie_width=width)
        result = _with_relu_ties(result, sides, evidence)
    probed = Probed()
    try:
        evaluation = next(stage.verdict for stage in result.stages if stage.id == EVAL_FORWARD)
        compared = compare_probes(port, reference, names.layers, evaluation)
        asked = compared.asked
        evidence = (yield Request(probes=asked)) if asked else Evidence()
        probed = judge_probes(compared, evidence.probes)
    except Exception as error:  # the stages do not need probes
        line = f"the comparison of probes failed ({words_of(error)})"
        result = dataclasses.replace(result, changes=[*result.changes, line])
    return dataclasses.replace(
        result,
        beyond=_beyond_rounding(result),
        probed=probed,
        coverage=coverage_of(sides, result.stages, probed),
    )


def _by_traces(sides: Sides) -> Verdict:
    """Return the verdict by the rounding that the reference's trace has, without probes."""
    port, reference = sides.port, sides.reference
    modes = port.environment.get("mode"), reference.environment.get("mode")
    return Verdict(
        compare_stages(sides),
        sides.layers,
        sides.names,
        remarks.settings(sides),
        changes=remarks.changes(sides),
        environment=remarks.environment(sides),
        precision="float16" if reference.plan.precision == "fp16" else "float32",
        compiled="pynative" not in modes,
        measured=bool(sides.rounding),
        ran={mode: len(one) for mode, one in port.layers.items()},
        rounding=sides.rounding,
    )


def _apart_from_step_ties(result: Verdict, sides: Sides) -> Verdict:
    """Return the verdict apart from what ties of functions such as `long` change, if it differs."""
    first, ties = result.first_computed, sides.reference.ties
    if ties is None or first is None:
        return result
    differs = [stage.id for stage in result.stages if stage.verdict == DIFFERS]
    forward = any((one.name, one.mode) == (TRAIN_FORWARD.name, "train") for one in differs)
    rounding = allowed.rounding_with_step_ties(sides.rounding, ties.rounding, forward)
    stages = compare_stages(dataclasses.replace(sides, rounding=rounding, otherwise=ties.run))
    # weights may have been compared after an earlier update
    of_first = [one for one in stages if one.id.of_any_update == first.id.of_any_update]
    if any(stage.verdict == DIFFERS for stage in of_first):
        return result  # ties are not the reason
    return dataclasses.replace(result, stages=stages, rounding=rounding, tied=ties.lines)


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


def _with_relu_ties(result: Verdict, sides: Sides, evidence: Evidence) -> Verdict:
    """Return the verdict by the rounding that includes flipped ties, if it is known."""
    if evidence.flipped is None:
        return result
    flipped, count = evidence.flipped
    rounding = allowed.rounding_with_relu_ties(result.rounding, flipped)
    ties = sides.reference.ties
    otherwise = ties.run if ties and result.tied else None
    # stages that do not depend on the rounding are not compared again
    unchanged = None if otherwise else {stage.id: stage for stage in result.stages}
    sides = dataclasses.replace(sides, rounding=rounding, otherwise=otherwise)
    stages = compare_stages(sides, unchanged)
    return dataclasses.replace(result, stages=stages, ties=count, rounding=rounding)


def _beyond_rounding(result: Verdict) -> list[Difference]:
    """Return the arrays within their tolerance that rounding does not explain, if it is known."""
    is_known = result.rounding and result.precision == "float32"
    return beyond_rounding(result.stages) if is_known else []
