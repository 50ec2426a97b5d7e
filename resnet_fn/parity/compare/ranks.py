"""Compare a training step of several workers with a training step of one worker."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.trace.data import Trace
from resnet_fn.parity.trace.difference import Difference, difference
from resnet_fn.parity.trace.ranks import EXACT
from resnet_fn.parity.trace.stages import AVERAGE, GRADIENTS, MOVED, STATISTICS
from resnet_fn.parity.trace.tree import Arrays

SUM = "sum over the workers"


def with_ranks(
    stages: list[Stage], ours: Trace, stages_of: Callable[[Trace], list[Stage]]
) -> list[Stage]:
    """Add the differences of ranks 1, 2, … to the stages of rank 0, and insert a stage for the sum
    of the gradients.

    BatchNorm statistics are compared with the mean of the workers' own statistics. `stages_of`
    returns the stages of one worker's trace.
    """
    if not ours.workers:
        return stages
    for rank, worker in enumerate(ours.workers[1:], 1):
        others = {stage.name: stage for stage in stages_of(worker)}
        for stage in stages:
            new = [
                one
                for one in others.get(stage.name, stage).differences
                if one not in stage.differences
            ]
            stage.differences += [replace(one, name=f"{one.name} of rank {rank}") for one in new]
    runs = [worker.run for worker in ours.workers]
    sent, own = [one.sent for one in runs], [one.own_statistics for one in runs]
    moved = [
        name for name in own[0] if any((one[name] != ours.run.start[name]).any() for one in own)
    ]
    for stage in stages if moved else ():
        if stage.name.startswith((STATISTICS, "weights after", AVERAGE, MOVED)):
            left = [one for one in stage.differences if one.name.partition(" ")[0] not in moved]
            stage.differences = [] if stage.name == MOVED else left
            stage.note = (
                stage.note or "without BatchNorm's statistics, which move with each micro-batch"
            )
        if stage.name == STATISTICS and ours.run.after:
            stage.differences += _combined(np.mean, own, [one.after[0] for one in runs], moved)
            stage.note = "compared with the mean of the workers' own statistics"
    total = Stage(SUM, note="the step's all-reduce was not given all gradients in one call")
    if all(any(array.any() for array in one.values()) for one in sent):
        total = Stage(SUM, _combined(np.sum, sent, [one.received for one in runs], [*sent[0]]))
    return [
        one for stage in stages for one in ((total, stage) if stage.name == GRADIENTS else (stage,))
    ]


def _combined(
    combine: Any, given: Sequence[Arrays], had: Sequence[Arrays], names: Sequence[str]
) -> list[Difference]:
    """Compare the arrays that each rank has (`had`) with the sum or mean (`combine`) of all ranks'
    arrays `given`.
    """
    right = {
        name: combine([one[name] for one in given], axis=0, dtype=np.float64) for name in names
    }
    pairs = [(name, rank) for name in names for rank in range(len(had))]
    return [
        difference(f"{name} of rank {rank}", had[rank][name], right[name], EXACT)
        for name, rank in pairs
    ]
