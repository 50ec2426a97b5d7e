"""Compare a net in MindSpore with a net in PyTorch, stage by stage through one training step."""

import dataclasses
from functools import partial

from resnet_fn.parity.compare.notes import first_found
from resnet_fn.parity.compare.verdict import Evidence, Request, Verdict, verdict
from resnet_fn.parity.explain.causes import StageCase, explain
from resnet_fn.parity.explain.kernel_causes import compiler_causes, possible_faults
from resnet_fn.parity.explain.rank_causes import worker_causes
from resnet_fn.parity.pair.name_map import NameMap
from resnet_fn.parity.trace.data import Trace
from resnet_fn.parity.trace.source import PortSource, ProbeAnswer, Source, StoredSource

Ladder = Verdict  # the public result of a comparison


def compare_recordings(
    port: Trace,
    reference: Trace,
    names: NameMap,
    initialisation: bool = True,
    search: bool = True,
    source: Source | None = None,
    port_source: PortSource | None = None,
) -> Ladder:
    """Compare two recordings of the same task.

    Args:
        port, reference: the recordings of both sides.
        names: the pairing of the port's parameters and layers with the reference's.
        initialisation: whether to compare the initial parameters.
        search: whether to search for the causes of a difference.
        source: what the reference can still be asked; by default what its trace has.
        port_source: what the port can still be asked, if it is in this process.
    """
    if reference.workers and not port.workers:
        raise ValueError(
            "reference: several workers recorded this trace; give a trace of one worker as the "
            "reference"
        )
    source = source or StoredSource(reference)
    if port.unmasked:
        reference = _with_fewer_masks(reference, port, source)
    result = _judged(port, reference, names, source, initialisation)
    stage = result.first_computed
    if stage is None:
        return result
    again = partial(_judged, reference=reference, names=names, source=source, initialisation=False)
    # later stages differ because this stage does
    rounded = dataclasses.replace(reference, rounding=result.rounding)
    case = StageCase(stage, result.layers, port, rounded, names, source)
    searches = [partial(worker_causes, case), partial(explain, case, search)]
    if port_source:
        searches.insert(0, partial(compiler_causes, result, port_source, again))
        searches.append(partial(possible_faults, result, port_source))
    return result.with_causes(first_found(*searches))


def _judged(
    port: Trace, reference: Trace, names: NameMap, source: Source, initialisation: bool
) -> Verdict:
    """Return the final verdict, without causes."""
    evidence = Evidence(source.tie_widths)
    result = verdict(port, reference, names, evidence, initialisation)
    while result.request:
        evidence = dataclasses.replace(evidence, earlier=result)
        evidence = _answered(evidence, result.request, source)
        result = verdict(port, reference, names, evidence, initialisation)
    return result


def _with_fewer_masks(reference: Trace, port: Trace, source: Source) -> Trace:
    """Return the reference's trace with the dropout masks that the port has a place for.

    If the reference cannot run again, the trace has no update with masks.
    """
    masked = source.with_fewer_masks(port.unmasked) if port.run.dropped else None
    layers = {mode: one for mode, one in reference.layers.items() if mode != "dropout"}
    if masked is None:
        run = dataclasses.replace(reference.run, dropped=[])
        return dataclasses.replace(reference, run=run, layers=layers)
    run = dataclasses.replace(reference.run, dropped=[masked.run])
    rounding = dict(reference.rounding)
    for stage, errors in masked.rounding.items():
        # that of all masks has the noise, too
        before = rounding.get(stage, {})
        rounding[stage] = {name: max(one, before.get(name, 0.0)) for name, one in errors.items()}
    return dataclasses.replace(
        reference, run=run, layers={**layers, "dropout": masked.layers}, rounding=rounding
    )


def _answered(evidence: Evidence, request: Request, source: Source) -> Evidence:
    """Return the evidence with the answer of the reference's source to a request."""
    if request.tie_width is not None:
        return dataclasses.replace(evidence, flipped=source.flipped_ties(request.tie_width))
    answer = source.probe_rounding(request.probes or {}) or ProbeAnswer({})
    why = f"not measured ({answer.failed})" if answer.failed else ""
    return dataclasses.replace(evidence, probes=answer.rounding, not_measured=why)
