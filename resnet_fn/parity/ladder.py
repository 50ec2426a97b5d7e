"""Compare a net in MindSpore with a net in PyTorch, stage by stage through one training step."""

import dataclasses
from collections.abc import Callable
from functools import partial

from resnet_fn.parity.compare.estimated import estimate, recorded_outputs, with_seen
from resnet_fn.parity.compare.notes import first_found
from resnet_fn.parity.compare.result import Verdict
from resnet_fn.parity.compare.verdict import verdict
from resnet_fn.parity.explain.causes import StageCase, explain, why_not_searched
from resnet_fn.parity.explain.kernel_causes import compiler_causes, possible_faults
from resnet_fn.parity.explain.rank_causes import worker_causes
from resnet_fn.parity.pair.name_map import NameMap
from resnet_fn.parity.trace.data import Trace
from resnet_fn.parity.trace.small import SmallTrace
from resnet_fn.parity.trace.source import PortSource, Source, StoredSource

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
    if isinstance(reference, SmallTrace):
        return _by_small_trace(reference, port, names, search, source, port_source)
    if port.unmasked:
        reference = _with_fewer_masks(reference, port, source)
    result = verdict(port, reference, names, source, initialisation)
    again = partial(verdict, reference=reference, names=names, source=source, initialisation=False)
    return _with_causes(result, port, reference, search, source, port_source, again)


def _by_small_trace(
    small: SmallTrace,
    port: Trace,
    names: NameMap,
    search: bool,
    source: Source,
    port_source: PortSource | None,
) -> Ladder:
    """Compare a port with a small trace of the reference."""
    if port.workers:
        raise ValueError(
            "reference: a small trace holds no workers; record the reference without --small"
        )

    def again(other: Trace) -> Verdict:
        port, reference, _ = estimate(small, other, names)
        return verdict(port, reference, names, initialisation=False)

    port, reference, seen = estimate(small, port, names)
    if isinstance(source, StoredSource):
        source = dataclasses.replace(source, trace=recorded_outputs(small, reference))
    result = verdict(port, reference, names, initialisation=False)
    result = _with_causes(result, port, reference, search, source, port_source, again)
    return with_seen(result, small, seen)


def _with_causes(
    result: Verdict,
    port: Trace,
    reference: Trace,
    search: bool,
    source: Source,
    port_source: PortSource | None,
    again: Callable[[Trace], Verdict],
) -> Verdict:
    """Return the verdict with causes of the first difference. `again` compares another trace of the
    port.
    """
    stage = result.first_computed
    if stage is None:
        return result
    # later stages differ because this stage does
    rounded = dataclasses.replace(reference, rounding=result.rounding)
    case = StageCase(stage, result.layers, port, rounded, result.names, source)
    searches = [partial(worker_causes, case), partial(explain, case, search)]
    if port_source:
        searches.insert(0, partial(compiler_causes, result, port_source, again))
        searches.append(partial(possible_faults, result, port_source))
    if search:
        searches.append(partial(why_not_searched, case))
    return result.with_causes(first_found(*searches))


def _with_fewer_masks(reference: Trace, port: Trace, source: Source) -> Trace:
    """Return the reference's trace with the dropout masks that the port has a place for.

    If the reference cannot run again, the trace has no update with masks.
    """
    masked = source.with_fewer_masks(port.unmasked) if port.run.dropped else None
    layers = {
        mode: executions for mode, executions in reference.layers.items() if mode != "dropout"
    }
    if masked is None:
        run = dataclasses.replace(reference.run, dropped=[])
        return dataclasses.replace(reference, run=run, layers=layers)
    run = dataclasses.replace(reference.run, dropped=[masked.run])
    rounding = dict(reference.rounding)
    for stage, errors in masked.rounding.items():
        # that of all masks has the noise, too
        before = rounding.get(stage, {})
        rounding[stage] = {
            name: max(error, before.get(name, 0.0)) for name, error in errors.items()
        }
    return dataclasses.replace(
        reference, run=run, layers={**layers, "dropout": masked.layers}, rounding=rounding
    )
