"""Find causes of a difference in MindSpore's compiler and kernels: the port's own code is right."""

import dataclasses
from collections.abc import Callable

from resnet_fn.parity.compare.result import Verdict
from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.trace import stages
from resnet_fn.parity.trace.data import Trace
from resnet_fn.parity.trace.derived import MEASURED_ARRAYS
from resnet_fn.parity.trace.difference import DIFFERS, UNDECIDED
from resnet_fn.parity.trace.source import PortSource
from resnet_fn.parity.trace.stages import StageId

# The stages of an update (`MEASURED_ARRAYS`) whose numbers come from nothing that is compiled.
_NOT_COMPILED = (stages.RATE, stages.CHANGED_BUFFERS)


def compiler_causes(
    result: Verdict, port: PortSource, judged: Callable[[Trace], Verdict]
) -> list[str]:
    """Return one line if the first stage that differs agrees when nothing is compiled.

    `judged` returns the verdict of another trace of the port.
    """
    stage = _of_kernels(result)
    if stage is None:
        return []
    trace = port.uncompiled()
    if trace is None or not _agrees_up_to(stage.id, judged(trace)):
        return []
    line = "graph mode alone differs: not compiled, this stage agrees (--mode pynative)"
    faults = [fault.words for fault in port.kernel_faults() if fault.compiled]
    return ["; ".join([line, *faults])]


def possible_faults(result: Verdict, port: PortSource) -> list[str]:
    """Return one line for each known fault of MindSpore's kernels that may be the cause of the
    first stage that differs.
    """
    if _of_kernels(result) is None:
        return []
    faults = port.kernel_faults()
    return [f"{fault.words}, and this net may use it" for fault in faults if not fault.compiled]


def _of_kernels(result: Verdict) -> Stage | None:
    """Return the first stage that differs, or None if kernels cannot be the cause.

    Layers are recorded one by one and not compiled, so a layer that differs is no such cause.
    """
    stage = result.first_computed
    if stage is None or result.first_layer:
        return None
    plain = _without_update(stage.id)
    return stage if plain in MEASURED_ARRAYS and plain not in _NOT_COMPILED else None


def _without_update(stage: StageId) -> StageId:
    return dataclasses.replace(stage, batch=stages.FIRST, update=0)


def _agrees_up_to(last: StageId, result: Verdict) -> bool:
    """Return whether the stage `last` was compared and is decided, and neither it nor an earlier
    one differs.
    """
    for stage in result.stages:
        if stage.verdict == DIFFERS:
            return False
        if stage.id.of_any_update == last.of_any_update:
            return bool(stage.differences) and stage.verdict != UNDECIDED
    return False
