"""`score` counts each sample exactly once; its bits do not depend on the number of workers or the batch size."""

import signal
from collections.abc import Callable

import numpy as np
from mindspore import Tensor

from resnet_fn.data.dataset import BadSampleError, DataSet, describe_bad_samples, eval_batches
from resnet_fn.evaluation.eval_step import EvalStep
from resnet_fn.evaluation.task import TOP, Scores, task_of
from resnet_fn.runtime.signals import SIGNALS, agreed_signal
from resnet_fn.runtime.workers import Workers, sum_over_ranks

# The net computes this many samples at a time, each always in the same row of its block, whatever the batch size and
# the number of workers: the last bits of a matrix product depend on its shape, and with few columns on the row.
BLOCK = 64


class StoppedError(Exception):
    """A signal, `number`, ended an evaluation between two batches, on every rank."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def score(
    eval_step: EvalStep,
    dataset: DataSet,
    batch_size: int,
    workers: Workers = Workers(),
    stop_flags: Callable[[], np.ndarray] = lambda: np.zeros(len(SIGNALS), np.float32),
    all_classes: bool = False,
    fills: bool = True,
) -> Scores:
    """Score every sample of the validation split once, sharing the work among the ranks; all ranks get all scores.

    Args:
        stop_flags: called before each batch and at the end (see `StopRequest`); if one rank has a flag, all ranks stop.
        all_classes: keep the probabilities of all classes, float32 [samples, classes], as multi-label always does; the
            evaluation step must return logits.
        fills: fill up the last block with the first sample; give False if the loss is a mean over its block.

    Raises:
        StoppedError: a rank received a signal; raised on every rank.
        BadSampleError: a rank cannot read or decode a sample; names it, on every rank.
        RuntimeError: a sample was scored twice or not at all.
    """
    split = dataset.test
    task = task_of(dataset.classes and split.labels.ndim == 2)  # int32 [N], or float32 [N, classes] of multi-label
    all_classes = all_classes or task.needs_logits
    share = -(-len(split) // (BLOCK * workers.size)) * BLOCK
    batches = -(-share // batch_size)
    batch_size = -(-share // (batches * BLOCK)) * BLOCK  # equal batches: the least padding

    def leave_together(error: BadSampleError | None = None) -> None:
        cannot_read, *signals = sum_over_ranks(np.array([error is not None, *stop_flags()], np.float32), workers)
        if number := agreed_signal(np.array(signals)):
            raise StoppedError(number)
        if cannot_read:
            raise BadSampleError(describe_bad_samples(error, workers))

    rows = np.zeros(0, np.float32)  # loss, prediction, rank, times scored, the likeliest classes, all probabilities
    samples = eval_batches(split, dataset.input, batch_size, workers, BLOCK)
    while True:
        try:
            batch = next(samples, None)
        except BadSampleError as error:
            leave_together(error)
        leave_together()
        if batch is None:
            break
        images, labels, indices = batch
        for start in range(0, batch_size, BLOCK):
            places = indices[start : start + BLOCK]
            real = places >= 0
            count = BLOCK if fills else max(1, int(real.sum()))  # those that are real come first
            result = eval_step(Tensor(images[start : start + count]), Tensor(labels[start : start + count]))
            columns = [*(value.numpy() for value in result[:3]), np.ones(count)]
            if result.logits is not None:
                logits = result.logits.numpy()
                columns += [task.top_classes(logits), *([task.probabilities(logits)] if all_classes else [])]
            block = np.column_stack(columns)
            rows = rows if rows.size else np.zeros((len(split), block.shape[1]), np.float32)
            rows[places[real]] += block[real[:count]]
    rows = sum_over_ranks(rows, workers)
    if not (rows[:, 3] == 1).all():
        raise RuntimeError(f"evaluation did not score samples {np.flatnonzero(rows[:, 3] != 1)[:5]} exactly once")
    prediction, rank = rows[:, 1].astype(np.int32), rows[:, 2].astype(np.int32)
    likely, every = np.split(rows[:, 4:], [2 * min(TOP, len(dataset.classes))], 1)
    top = likely.reshape(len(split), 2, -1) if likely.size else None
    return task.complete(Scores(rows[:, 0], prediction, rank, top, every if all_classes else None), split.labels)
