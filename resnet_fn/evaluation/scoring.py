"""`score` evaluates each validation sample once, with bitwise equal scores for any batch size and
number of workers.
"""

import signal
from collections.abc import Callable

import numpy as np
from mindspore import Tensor

from resnet_fn.data.dataset import BadSampleError, DataSet, describe_bad_samples, eval_batches
from resnet_fn.evaluation.eval_step import EvalStep
from resnet_fn.evaluation.task import TOP, Scores, task_of
from resnet_fn.runtime.process import ending_mixed_precision
from resnet_fn.runtime.signals import SIGNALS, agreed_signal
from resnet_fn.runtime.workers import Workers, sum_over_ranks

# The net computes blocks of this many samples. A sample has the same row of its block for any batch
# size and number of workers, because the last bits of a matrix product depend on the shape, and
# with few columns on the row.
BLOCK = 64


class StoppedError(Exception):
    """A signal (with the number `number`) ended an evaluation between two batches.

    Every rank raises this error.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@ending_mixed_precision()  # an error must not round weights that are restored after it
def score(
    eval_step: EvalStep,
    dataset: DataSet,
    batch_size: int,
    workers: Workers = Workers(),
    stop_flags: Callable[[], np.ndarray] = lambda: np.zeros(len(SIGNALS), np.float32),
    all_classes: bool = False,
    fills: bool = True,
) -> Scores:
    """Score each validation sample once.

    The workers share the samples, and every rank returns all scores.

    Args:
        eval_step: the result of `make_eval_step`.
        dataset: the data set, whose split `test` is scored.
        batch_size: approximate number of samples that a worker reads at a time.
        workers: this worker's rank and the number of workers.
        stop_flags: returns float32 [3] for (SIGTERM, SIGINT, SIGHUP): 1 for the signal that this
            worker noted, else 0.
        all_classes: whether to keep the probabilities of all classes. Multi-label probabilities are
            always kept. To compute probabilities of all classes, the evaluation step must return
            logits.
        fills: whether to pad a block of fewer than 64 samples to 64. The net evaluates one block at
            a time. Set `fills` to False if the evaluation step returns the mean loss of the block
            for each sample.

    Raises:
        StoppedError: a rank received a signal. Every rank raises StoppedError.
        BadSampleError: a rank cannot read or decode a sample. Every rank raises BadSampleError.
        RuntimeError: a sample was scored twice or not at all.
    """
    split = dataset.test
    # int32 [N], or float32 [N, classes] of multi-label
    task = task_of(dataset.classes and split.labels.ndim == 2)
    all_classes = all_classes or task.needs_logits
    share = -(-len(split) // (BLOCK * workers.size)) * BLOCK
    batches = -(-share // batch_size)
    # batches of equal size need the least padding
    batch_size = -(-share // (batches * BLOCK)) * BLOCK

    def leave_together(error: BadSampleError | None = None) -> None:
        cannot_read, *signals = sum_over_ranks(
            np.array([error is not None, *stop_flags()], np.float32), workers
        )
        if number := agreed_signal(np.array(signals)):
            raise StoppedError(number)
        if cannot_read:
            raise BadSampleError(describe_bad_samples(error, workers))

    # loss, prediction, rank, times scored, likeliest classes, all probabilities
    rows = np.zeros(0, np.float32)
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
            count = BLOCK if fills else max(1, int(real.sum()))  # without padding, which comes last
            result = eval_step(
                Tensor(images[start : start + count]), Tensor(labels[start : start + count])
            )
            columns = [*(value.numpy() for value in result[:3]), np.ones(count)]
            if result.logits is not None:
                logits = result.logits.numpy()
                columns += [
                    task.top_classes(logits),
                    *([task.probabilities(logits)] if all_classes else []),
                ]
            block = np.column_stack(columns)
            rows = rows if rows.size else np.zeros((len(split), block.shape[1]), np.float32)
            rows[places[real]] += block[real[:count]]
    rows = sum_over_ranks(rows, workers)
    if not (rows[:, 3] == 1).all():
        raise RuntimeError(
            f"evaluation did not score samples {np.flatnonzero(rows[:, 3] != 1)[:5]} exactly once"
        )
    prediction, rank = rows[:, 1].astype(np.int32), rows[:, 2].astype(np.int32)
    likely, every = np.split(rows[:, 4:], [2 * min(TOP, len(dataset.classes))], 1)
    top = likely.reshape(len(split), 2, -1) if likely.size else None
    return task.complete(
        Scores(rows[:, 0], prediction, rank, top, every if all_classes else None), split.labels
    )
