"""Find causes of a difference in MindSpore's compiler and kernels: the port's own code is right."""

import dataclasses
from collections.abc import Callable

from resnet_fn.parity.compare.verdict import Verdict
from resnet_fn.parity.trace import stages
from resnet_fn.parity.trace.data import Trace
from resnet_fn.parity.trace.difference import DIFFERS
from resnet_fn.parity.trace.source import PortSource
from resnet_fn.parity.trace.stages import StageId

# What the compiled step and the compiled evaluation compute.
_COMPILED = (
    stages.EVAL_FORWARD,
    stages.TRAIN_FORWARD,
    stages.LOSS,
    stages.GRADIENTS,
    stages.NORM,
    stages.CLIPPED,
    stages.CHANGE,
    stages.STATISTICS,
    stages.TRAJECTORY,
    stages.LAST,
    stages.AVERAGE,
)


def kernel_causes(
    result: Verdict, port: PortSource, judged: Callable[[Trace], Verdict]
) -> list[str]:
    """Return one line for each cause of the first stage that differs.

    `judged` returns the verdict of another trace of the port.
    """
    stage = result.first_computed
    # Layers are recorded one by one and not compiled, so a layer that differs is no such cause.
    if stage is None or result.first_layer or _without_update(stage.id) not in _COMPILED:
        return []
    faults = port.kernel_faults()
    trace = port.uncompiled()
    if trace and _agrees_up_to(stage.id, judged(trace)):
        line = "graph mode alone differs: not compiled, this stage agrees (--mode pynative)"
        return ["; ".join([line, *(one.words for one in faults if one.compiled)])]
    return [f"{one.words}, and this net may use it" for one in faults if not one.compiled]


def _without_update(stage: StageId) -> StageId:
    return dataclasses.replace(stage, batch=stages.FIRST, update=0)


def _agrees_up_to(last: StageId, result: Verdict) -> bool:
    """Return whether the stage `last` was compared, and neither it nor an earlier one differs."""
    for stage in result.stages:
        if stage.verdict == DIFFERS:
            return False
        if dataclasses.replace(stage.id, update=0) == dataclasses.replace(last, update=0):
            return bool(stage.differences)
    return False
