"""Exact scores: every sample of a split once, the same bits for any number of workers and any batch size."""

from collections.abc import Callable

import numpy as np
from mindspore import Tensor

from resnet_fn.data.dataset import DataSet, eval_batches
from resnet_fn.evaluation.task import Scores, task_of
from resnet_fn.runtime.signals import raise_if_stopped
from resnet_fn.runtime.workers import Workers, sum_over_ranks
from resnet_fn.update.eval_step import EvalStep

# The net computes this many samples at a time, each always in the same row of its block, whatever the batch size and
# the number of workers: the last bits of a matrix product depend on its shape, and with few columns on the row.
BLOCK = 64


def score(
    eval_step: EvalStep,
    dataset: DataSet,
    batch_size: int,
    workers: Workers = Workers(),
    asked: Callable[[], int] = lambda: 0,
    all_classes: bool = False,
) -> Scores:
    """Score every sample of the validation split once, sharing the work among the ranks; all ranks get all scores.

    Each rank fills its samples' rows of an array over the whole split; the sum over the ranks is exact, since all
    addends but one are zero.

    Args:
        asked: called before each batch and at the end, equally often on every rank; returns the number of a signal
            to stop for, the same on every rank, or 0.
        all_classes: keep the probabilities of all classes, samples · classes float32 on every rank (multi-label
            always does); the evaluation step must return logits.

    Raises:
        StoppedError: `asked` returned a signal.
        RuntimeError: a sample was scored twice or not at all.
    """
    split = dataset.test
    task = task_of(split.labels.ndim == 2)  # int32 [N], or float32 [N, classes] of multi-label
    all_classes = all_classes or task.needs_logits
    share = -(-len(split) // (BLOCK * workers.size)) * BLOCK
    batches = -(-share // batch_size)
    batch_size = -(-share // (batches * BLOCK)) * BLOCK  # equal batches: the least padding
    rows = np.zeros((len(split), 4), np.float32)
    top = np.zeros((len(split), 0), np.float32)
    every = np.zeros((len(split), len(dataset.classes) if all_classes else 0), np.float32)
    for images, labels, indices in eval_batches(split, dataset.input, batch_size, workers, BLOCK):
        raise_if_stopped(asked())
        for start in range(0, batch_size, BLOCK):
            places = indices[start : start + BLOCK]
            real = places >= 0
            result = eval_step(Tensor(images[start : start + BLOCK]), Tensor(labels[start : start + BLOCK]))
            values = [value.asnumpy() for value in result if value is not None]
            rows[places[real], :3] = np.stack(values[:3], 1)[real]
            rows[places[real], 3] += 1
            if result.logits is not None:
                likely = task.top_classes(values[3])
                top = top if top.shape[1] else np.zeros((len(split), likely.shape[1]), np.float32)
                top[places[real]] = likely[real]
                if all_classes:
                    every[places[real]] = task.probabilities(values[3])[real]
    raise_if_stopped(asked())
    rows = sum_over_ranks(np.concatenate((rows, top), 1), workers)
    every = sum_over_ranks(every, workers) if all_classes else every
    if not (rows[:, 3] == 1).all():
        raise RuntimeError(f"evaluation did not score samples {np.flatnonzero(rows[:, 3] != 1)[:5]} exactly once")
    kept = rows[:, 4:].reshape(len(split), 2, -1) if rows.shape[1] > 4 else None
    prediction, rank = rows[:, 1].astype(np.int32), rows[:, 2].astype(np.int32)
    return task.complete(Scores(rows[:, 0], prediction, rank, kept, every if all_classes else None), split.labels)
