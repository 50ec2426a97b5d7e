"""Merge the recordings of several workers into one."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from resnet_fn.parity.trace.data import Trace, further_passes
from resnet_fn.parity.trace.limits import EXACT
from resnet_fn.parity.trace.plan import Plan


def check_shares(plan: Plan, workers: int, batchnorm: bool) -> None:
    """Raise ValueError if the workers cannot divide a batch, or if one worker cannot compute every
    worker's part.
    """
    if plan.accumulate % workers and (batchnorm or plan.accumulate > 1):
        because = ", because of BatchNorm" * batchnorm
        raise ValueError(
            f"accumulate: {plan.accumulate} must be a multiple of {workers}, the number of "
            f"workers{because}; "
            f"give accumulate {workers} in this run and in the run with one worker"
        )
    replace(plan, accumulate=max(workers, plan.accumulate))  # `Plan` checks that each batch divides


def merge(recordings: Sequence[Trace]) -> Trace:
    """Merge the recordings of all workers, in the order of ranks, into one. The given recordings
    change.

    Each trace gets the last worker's training outputs or, without micro-batches, the outputs of the
    whole batch.
    """
    first, runs = recordings[0], [recording.run for recording in recordings]
    whole = first.plan.accumulate % len(runs) > 0
    further = [passes for _, passes in further_passes(*runs)]
    for group in (runs, *further):
        for outputs in zip(*(run.train_outputs for run in group), strict=True):
            rows = {
                name: [of_worker[name] for of_worker in outputs]
                for name, array in outputs[0].items()
                if whole and array.ndim
            }
            # all get the last worker's outputs, or the outputs of the whole batch
            for worker_outputs in outputs:
                worker_outputs.update(
                    outputs[-1] | {name: np.concatenate(arrays) for name, arrays in rows.items()}
                )
    notes = [
        f"recorded by {len(runs)} "
        f"workers{', without an update with dropout' if whole and first.drops else ''}"
    ]
    of_batch = runs[0].own_losses[1:]
    if not whole and of_batch and not math.isclose(*of_batch, rel_tol=EXACT):
        notes.append(
            "the counts differ between workers, so the mean of their losses is not the batch's "
            "loss; "
            "record both sides without --accumulate"
        )
    return replace(first, workers=[*recordings], notes=[*first.notes, *notes])
