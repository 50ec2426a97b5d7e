"""Compare a training step of several workers with a training step of one worker. Needs NumPy only.

Each of several workers computes its part (share) of each batch. A single worker computes the same
parts as micro-batches or, if the net has no BatchNorm, the whole batch.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from resnet_fn.config.hints import few
from resnet_fn.parity import name_map
from resnet_fn.parity.causes import StageCase
from resnet_fn.parity.layers.difference import FITS, Difference, difference, norm, relative_error
from resnet_fn.parity.stages import AVERAGE, GRADIENTS, LOSS, MOVED, NORM, STATISTICS, Stage
from resnet_fn.parity.trace import Arrays, Recording, Task, Trace

SUM = "sum over the workers"
_EXACT = 1e-5  # relative error of two sums of the same float32 numbers


def check_shares(task: Task, workers: int, batchnorm: bool) -> None:
    """Raise ValueError if the workers cannot divide a batch, or if one worker cannot compute every
    worker's part.
    """
    if task.accumulate % workers and (batchnorm or task.accumulate > 1):
        because = ", because of BatchNorm" * batchnorm
        raise ValueError(
            f"accumulate: {task.accumulate} must be a multiple of {workers}, the number of "
            f"workers{because}; "
            f"give accumulate {workers} in this run and in the run with one worker"
        )
    replace(task, accumulate=max(workers, task.accumulate))  # `Task` checks that each batch divides


def merge(recordings: Sequence[Recording]) -> Recording:
    """Merge the recordings of all workers, in the order of ranks, into one. The given recordings
    change.

    Each trace gets the last worker's training outputs or, without micro-batches, the outputs of the
    whole batch.
    """
    first, traces = recordings[0], [one.trace for one in recordings]
    whole = first.task.accumulate % len(traces) > 0
    later, dropped = (
        zip(*(getattr(one, name) for one in traces), strict=True) for name in ("later", "dropped")
    )
    for group in (traces, *later, *dropped):
        for outputs in zip(*(one.train_outputs for one in group), strict=True):
            rows = {
                name: [one[name] for one in outputs]
                for name, array in outputs[0].items()
                if whole and array.ndim
            }
            # all get the last worker's outputs, or the outputs of the whole batch
            for one in outputs:
                one.update(
                    outputs[-1] | {name: np.concatenate(arrays) for name, arrays in rows.items()}
                )
    notes = [
        f"recorded by {len(traces)} "
        f"workers{', without an update with dropout' if whole and first.drops else ''}"
    ]
    of_batch = traces[0].own_losses[1:]
    if not whole and of_batch and not math.isclose(*of_batch, rel_tol=_EXACT):
        notes.append(
            "the counts differ between workers, so the mean of their losses is not the batch's "
            "loss; "
            "record both sides without --accumulate"
        )
    return replace(first, ranks=traces, notes=[*first.notes, *notes])


def with_ranks(
    stages: list[Stage], ours: Recording, stages_of: Callable[[Trace], list[Stage]]
) -> list[Stage]:
    """Add the differences of ranks 1, 2, … to the stages of rank 0, and insert a stage for the sum
    of the gradients.

    BatchNorm statistics are compared with the mean of the workers' own statistics. `stages_of`
    returns the stages of one worker's trace.
    """
    if not ours.ranks:
        return stages
    for rank, trace in enumerate(ours.ranks[1:], 1):
        others = {stage.name: stage for stage in stages_of(trace)}
        for stage in stages:
            new = [
                one
                for one in others.get(stage.name, stage).differences
                if one not in stage.differences
            ]
            stage.differences += [replace(one, name=f"{one.name} of rank {rank}") for one in new]
    sent, own = [one.sent for one in ours.ranks], [one.own_statistics for one in ours.ranks]
    moved = [
        name for name in own[0] if any((one[name] != ours.trace.start[name]).any() for one in own)
    ]
    for stage in stages if moved else ():
        if stage.name.startswith((STATISTICS, "weights after", AVERAGE, MOVED)):
            left = [one for one in stage.differences if one.name.partition(" ")[0] not in moved]
            stage.differences = [] if stage.name == MOVED else left
            stage.note = (
                stage.note or "without BatchNorm's statistics, which move with each micro-batch"
            )
        if stage.name == STATISTICS and ours.trace.after:
            stage.differences += _combined(
                np.mean, own, [one.after[0] for one in ours.ranks], moved
            )
            stage.note = "compared with the mean of the workers' own statistics"
    total = Stage(SUM, note="the step's all-reduce was not given all gradients in one call")
    if all(any(array.any() for array in one.values()) for one in sent):
        total = Stage(
            SUM, _combined(np.sum, sent, [one.received for one in ours.ranks], [*sent[0]])
        )
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
        difference(f"{name} of rank {rank}", had[rank][name], right[name], _EXACT)
        for name, rank in pairs
    ]


def worker_causes(case: StageCase) -> list[str]:
    """Return lines that explain a stage's difference by a wrong sum or mean over the workers."""
    return _CAUSES[case.stage.name](case) if case.ours.ranks and case.stage.name in _CAUSES else []


def _loss(case: StageCase) -> list[str]:
    ranks, right = case.ours.ranks, case.theirs.trace.losses[0]
    losses, own = [one.losses[0] for one in ranks], [one.own_losses[0] for one in ranks]
    if np.allclose(losses, own, _EXACT, 0):
        return ["each worker returns the loss of its own share; return the mean over the workers"]
    of_batch = [one for one in ranks[0].own_losses[1:2] if math.isclose(one, right, rel_tol=_EXACT)]
    if of_batch and np.allclose(losses, np.mean(own), _EXACT, 0):
        means = few([f"{one:.6g}" for one in own])
        return [
            f"the mean of the workers' means {means}, whose counts differ; weight each mean by its "
            "count"
        ]
    return []


def _gradients(case: StageCase) -> list[str]:
    count, groups = len(case.ours.ranks), dict[str, list[str]]()
    theirs = case.names.rename(case.theirs.trace.gradients, name_map.GRADIENTS)
    for name in case.differing():
        each = [one.gradients[name] for one in case.ours.ranks]
        if any(relative_error(one, each[0]) > FITS for one in each):
            groups.setdefault("each worker has other values; sum them over the workers", []).append(
                name
            )
        elif relative_error(each[0], count * theirs[name]) < FITS:
            groups.setdefault(
                f"{count} times the reference's: counted once for each worker", []
            ).append(name)
    return [f"{few(names)}: {words}" for words, names in groups.items()]


def _norm(case: StageCase) -> list[str]:
    ranks, count = case.ours.ranks, len(case.ours.ranks)
    norms = [one.norms[0] for one in ranks]
    own = np.array([math.hypot(*map(norm, one.sent.values())) for one in ranks])
    # A step divides by the workers before the sum or after it.
    if any(np.allclose(norms, times * own, FITS, 0) for times in (1, count)):
        return ["each worker takes the norm of its own gradients; take it after their sum"]
    squares = {name: norm(one) ** 2 for name, one in ranks[0].gradients.items()}
    more = (norms[0] ** 2 - case.theirs.trace.norms[0] ** 2) / (count - 1)
    squares["every parameter"] = sum(squares.values())
    counted = [name for name, square in squares.items() if math.isclose(square, more, rel_tol=FITS)]
    return (
        [f"{few(counted)}: counted {count} times in the norm, once for each worker"]
        if counted
        else []
    )


def _statistics(case: StageCase) -> list[str]:
    own, after = (
        [one.own_statistics for one in case.ours.ranks],
        [one.after[0] for one in case.ours.ranks],
    )
    sources = {"each worker keeps the statistics of its own share": own}
    sources |= {
        f"the statistics of rank {rank} alone": [one] * len(own) for rank, one in enumerate(own)
    }

    def kept(name: str, source: Sequence[Arrays]) -> bool:
        return all(
            relative_error(a[name], b[name]) < _EXACT for a, b in zip(after, source, strict=True)
        )

    pairs = [
        (words, [name for name in case.differing() if kept(name, source)])
        for words, source in sources.items()
    ]
    return [
        f"{few(names)}: {words}; take the mean over the workers" for words, names in pairs if names
    ]


_CAUSES = {LOSS: _loss, GRADIENTS: _gradients, NORM: _norm, STATISTICS: _statistics}
