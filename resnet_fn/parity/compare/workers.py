"""Compare a training step of several workers with a training step of one worker."""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from resnet_fn.parity.compare.allowed import within
from resnet_fn.parity.compare.stage import Absent, Stage, not_in_task
from resnet_fn.parity.trace.data import Run, Trace
from resnet_fn.parity.trace.difference import UNDECIDED, Difference
from resnet_fn.parity.trace.limits import EXACT
from resnet_fn.parity.trace.stages import SUM, ArrayId
from resnet_fn.parity.trace.tree import Arrays


@dataclass(frozen=True)
class PortWorkers:
    """The port's workers, in the order of ranks."""

    port: Trace

    @property
    def runs(self) -> list[Run]:
        """The run of each worker."""
        return [worker.run for worker in self.port.workers]

    @functools.cached_property
    def moved(self) -> list[str]:
        """BatchNorm's statistics, which move with each worker's own micro-batches."""
        own = [run.own_statistics for run in self.runs]
        start = self.port.run.start
        return [
            name for name in own[0] if any((arrays[name] != start[name]).any() for arrays in own)
        ]

    def without_moved(self, stage: Stage) -> Stage:
        """Return a stage without BatchNorm's statistics."""
        if not self.moved:
            return stage
        left = [item for item in stage.differences if item.id.name not in self.moved]
        left_out = [item for item in stage.left_out if item.id.name not in self.moved]
        note = stage.note or "without BatchNorm's statistics, which move with each micro-batch"
        absent = stage.absent
        had_numbers = stage.differences or stage.left_out
        # it may have had these numbers alone
        if absent is Absent.NOT_READ and had_numbers and not left_out:
            absent = Absent.NOT_IN_TASK
        return replace(stage, differences=left, left_out=left_out, note=note, absent=absent)

    def with_mean_of_statistics(self, stage: Stage) -> Stage:
        """Add the comparison of BatchNorm's statistics with the mean of the workers' own."""
        if not self.moved or not self.port.run.after:
            return stage
        own = [run.own_statistics for run in self.runs]
        after = [run.after[0] for run in self.runs]
        of_mean = _combined(np.mean, own, after, self.moved, EXACT)
        differences = [*stage.differences, *of_mean]
        note = "compared with the mean of the workers' own statistics"
        return replace(stage, differences=differences, note=note)

    def sum_of_gradients(self, tolerance: float) -> Stage:
        """Compare what the step's all-reduce returned with the sum of what it took."""
        sent = [run.sent for run in self.runs]
        received = [run.received for run in self.runs]
        if not all(any(array.any() for array in gradients.values()) for gradients in sent):
            note = "the step's all-reduce was not given all gradients in one call"
            return not_in_task(SUM, note)  # the gradients themselves are compared
        return Stage(SUM, _combined(np.sum, sent, received, [*sent[0]], tolerance))


def merged(stage: Stage, others: Sequence[Stage | None]) -> Stage:
    """Return the stage of rank 0 with what ranks 1, 2, … have different."""
    differences, left_out = [*stage.differences], [*stage.left_out]
    hints, too_small = [*stage.hints], [*stage.too_small]
    not_exercised = [*stage.not_exercised]
    notes, absent = [stage.note], stage.absent
    failed, undecided = [stage.failed], [stage.undecided]
    if any(other.differences for other in others if other):
        undecided = [_undecided_as_whole(stage)]  # else the numbers of other ranks would decide
    for rank, other in enumerate(others, 1):
        if other is None:
            continue
        differences += _new(rank, other.differences, stage.differences)
        left_out += _new(rank, other.left_out, stage.left_out)
        hints += other.hints
        too_small += other.too_small
        not_exercised += other.not_exercised
        if other.note and other.note != stage.note:
            notes.append(f"worker {rank}: {other.note}")
            # a line of what was not exercised has the note
            absent = other.absent if other.absent is Absent.CHAOTIC else absent
        if other.failed and other.failed not in failed:
            failed.append(f"worker {rank}: {other.failed}")
        reason = _undecided_as_whole(other)
        if reason and reason != stage.reason:
            undecided.append(f"worker {rank}: {reason}")
    return replace(
        stage,
        differences=differences,
        left_out=left_out,
        hints=[*dict.fromkeys(hints)],
        too_small=[*dict.fromkeys(too_small)],
        not_exercised=[*dict.fromkeys(not_exercised)],
        note="; ".join(filter(None, notes)),
        absent=absent,
        failed="; ".join(filter(None, failed)),
        undecided="; ".join(filter(None, undecided)),
    )


def _undecided_as_whole(stage: Stage) -> str:
    """Return why a worker's stage is undecided, whatever arrays others have, or "".

    Where its arrays are only set apart, those of another worker may decide.
    """
    if stage.verdict != UNDECIDED or (stage.left_out and not stage.undecided):
        return ""
    return stage.reason


def _new(
    rank: int, items: Iterable[Difference], of_first: Sequence[Difference]
) -> list[Difference]:
    """Return a worker's differences that rank 0 does not have."""
    return [
        replace(item, id=replace(item.id, worker=rank)) for item in items if item not in of_first
    ]


def _combined(
    combine: Any,
    of_workers: Sequence[Arrays],
    had: Sequence[Arrays],
    names: Sequence[str],
    tolerance: float,
) -> list[Difference]:
    """Compare the arrays that each worker has (`had`) with the sum or mean (`combine`) of all
    workers' arrays `of_workers`.
    """
    right = {
        name: combine([own[name] for own in of_workers], axis=0, dtype=np.float64) for name in names
    }
    pairs = [(name, rank) for name in names for rank in range(len(had))]
    bound = within(tolerance)
    return [
        bound.compare(ArrayId(name, worker=rank), had[rank][name], right[name])
        for name, rank in pairs
    ]
