"""Decide whether two traces of the same task agree.

`decide` is a function of data, and is read from top to bottom. Where both traces are not enough, it
yields a request. `verdict` asks the reference's source, and sends the answer back. `decide` is a
generator so that it calls no reference: a test can answer the requests without a module. Stages are
compared in `comparing.compare_stages`, rule by rule. Whether ties are why a stage differs is in
`tie_reasons`; what undecided arrays do to a stage is in `stage`; what undecided stages do to the
verdict is in `result`.
"""

import dataclasses
from collections.abc import Generator, Sequence
from typing import NamedTuple, assert_never

from resnet_fn.config.wording import words_of
from resnet_fn.parity.compare.comparing import beyond_rounding, verdict_by_recorded_rounding
from resnet_fn.parity.compare.coverage import coverage_of
from resnet_fn.parity.compare.probes import Probed, compare_probes, judge_probes
from resnet_fn.parity.compare.result import Verdict
from resnet_fn.parity.compare.sides import Sides, both_sides
from resnet_fn.parity.compare.tie_reasons import (
    excusing_relu_ties,
    excusing_step_ties,
    width_to_ask,
)
from resnet_fn.parity.pair.name_map import NameMap
from resnet_fn.parity.trace.data import Rounding, Trace
from resnet_fn.parity.trace.probes import AskedProbes
from resnet_fn.parity.trace.source import ProbeAnswer, Source, StoredSource
from resnet_fn.parity.trace.stages import EVAL_FORWARD


class AskTies(NamedTuple):
    """The request for the rounding with flipped ties of ReLUs."""

    width: float


class AskProbes(NamedTuple):
    """The request for the rounding of probes."""

    probes: AskedProbes


class FlippedTies(NamedTuple):
    """The answer to `AskTies`."""

    rounding: Rounding  # with these ties flipped
    ties: int  # how many there are


Request = AskTies | AskProbes  # what a comparison needs to know of the reference beside its trace
Answer = FlippedTies | ProbeAnswer | None  # None: the source does not know it


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


def _answer(request: Request, source: Source) -> Answer:
    match request:
        case AskTies(width):
            flipped = source.flipped_ties(width)
            return None if flipped is None else FlippedTies(*flipped)
        case AskProbes(probes):
            return source.probe_rounding(probes)
    assert_never(request)


def decide(
    port: Trace,
    reference: Trace,
    names: NameMap,
    tie_widths: Sequence[float] = (),
    initialisation: bool = True,
) -> Generator[Request, Answer, Verdict]:
    """Compare two traces; yield a request where they are not enough, and take the answer.

    At most two requests come: first for flipped ties of ReLUs, whose larger rounding may excuse
    what differs (and leave undecided what passes by rounding), then for the rounding of probes,
    which changes no stage. None as the answer changes nothing.

    `tie_widths` are the widths of ties of which the reference's source has an answer.
    """
    sides = both_sides(port, reference, names, initialisation)
    result = verdict_by_recorded_rounding(sides)
    result = excusing_step_ties(result, sides)
    width = width_to_ask(result, tie_widths)
    if width is not None:
        answer = yield AskTies(width)
        if isinstance(answer, FlippedTies):
            result = excusing_relu_ties(result, sides, answer.rounding, answer.ties)
    probed, failure = yield from _compared_probes(sides, result)
    return dataclasses.replace(
        result,
        changes=[*result.changes, failure] if failure else result.changes,
        beyond=beyond_rounding(result),
        probed=probed,
        coverage=coverage_of(sides, result.stages, probed),
    )


def _compared_probes(
    sides: Sides, result: Verdict
) -> Generator[Request, Answer, tuple[Probed, str]]:
    """Compare the probes, and return the comparison with why it failed, or an empty string.

    An error here costs the probes only, since the stages do not need these. An error of the source
    is not caught: `verdict` asks the source outside of this generator.
    """
    try:
        forward_verdict = next(stage.verdict for stage in result.stages if stage.id == EVAL_FORWARD)
        compared = compare_probes(sides.port, sides.reference, sides.names.layers, forward_verdict)
        answer = (yield AskProbes(compared.asked)) if compared.asked else None
        known = answer if isinstance(answer, ProbeAnswer) else ProbeAnswer({})
        return judge_probes(compared, known), ""
    except Exception as error:
        return Probed(), f"the comparison of probes failed ({words_of(error)})"
