"""`score` evaluates each validation sample once, with bitwise equal scores for any number of
workers and any batch size from 64 on.
"""

import signal
from collections.abc import Callable, Iterator

import numpy as np
from mindspore import Tensor

from resnet_fn.data.dataset import DataSet, eval_batches
from resnet_fn.data.worker_errors import error_of_all
from resnet_fn.evaluation.eval_step import EvalStep
from resnet_fn.evaluation.task import TOP, Scores, task_of
from resnet_fn.runtime.process import ending_mixed_precision
from resnet_fn.runtime.signals import SIGNALS, agreed_signal
from resnet_fn.runtime.workers import Workers, sum_over_ranks

# The net computes blocks of this many samples, or fewer if the batch size is smaller. A sample has
# the same row of its block for any larger batch size and number of workers, because the last bits
# of a matrix product depend on the shape, and with few columns on the row.
BLOCK = 64
_END = object()


def block_size(batch_size: int) -> int:
    """Return how many samples the net computes at a time in an evaluation."""
    return min(BLOCK, batch_size)


class StoppedError(Exception):
    """A signal (with the number `number`) ended an evaluation between two batches.

    Every worker raises this error.
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

    The workers share the samples, and every worker returns all scores.

    Args:
        eval_step: the result of `make_eval_step`.
        dataset: the data set, whose split `test` is scored.
        batch_size: approximate number of samples that a worker reads at a time. Below 64, the net
            also computes this many at a time, which needs less memory and can change the last bits.
        workers: this worker's rank and the number of workers.
        stop_flags: returns a number for each of `SIGNALS`, float32: 1 for the signal that this
            worker noted, else 0.
        all_classes: whether to keep the probabilities of all classes. Multi-label probabilities are
            always kept. To compute probabilities of all classes, the evaluation step must return
            logits.
        fills: whether to pad the last block of samples to the size of the others. Set `fills` to
            False if the evaluation step returns the mean loss of the block for each sample.

    Raises:
        StoppedError: a worker received a signal. Every worker raises StoppedError.
        BadSampleError: a worker cannot read or decode a sample. Every worker raises BadSampleError.
        WorkerError: a worker of several has another error. Every worker raises WorkerError. With
            one worker, the error itself is raised.
        RuntimeError: a sample was scored twice or not at all.
    """
    split = dataset.test
    # int32 [N], or float32 [N, classes] of multi-label
    task = task_of(dataset.classes and split.labels.ndim == 2)
    all_classes = all_classes or task.needs_logits
    block = block_size(batch_size)
    share = -(-len(split) // (block * workers.size)) * block
    # batches of equal size need the least padding
    batches = -(-share // batch_size)
    batch_size = -(-share // (batches * block)) * block
    # loss, prediction, rank, times scored, likeliest classes, all probabilities
    rows = np.zeros(0, np.float32)

    def evaluate() -> Iterator[None]:
        """Score this worker's samples. Stops after each batch that was read."""
        nonlocal rows
        for images, labels, indices in eval_batches(
            split, dataset.input, batch_size, workers, block
        ):
            yield
            for start in range(0, batch_size, block):
                numbers = indices[start : start + block]
                real = numbers >= 0
                # without padding, which comes last
                count = block if fills else max(1, int(real.sum()))
                result = eval_step(
                    Tensor(images[start : start + count]), Tensor(labels[start : start + count])
                )
                columns = [*(value.numpy() for value in result[:3]), np.ones(count)]
                if result.logits is not None:
                    logits = result.logits.numpy()
                    columns.append(task.top_classes(logits))
                    columns += [task.probabilities(logits)] if all_classes else []
                scored = np.column_stack(columns)
                rows = rows if rows.size else np.zeros((len(split), scored.shape[1]), np.float32)
                rows[numbers[real]] += scored[real[:count]]

    steps = evaluate()
    is_over = False
    while not is_over:
        error = None
        try:
            is_over = next(steps, _END) is _END
        except Exception as raised:
            error = raised
        _leave_together(error, stop_flags(), workers)
    rows = sum_over_ranks(rows, workers)
    if not (rows[:, 3] == 1).all():
        raise RuntimeError(
            f"evaluation did not score samples {np.flatnonzero(rows[:, 3] != 1)[:5]} exactly once"
        )
    prediction, rank = rows[:, 1:3].astype(np.int32).T
    likely, every = np.split(rows[:, 4:], [2 * min(TOP, len(dataset.classes))], 1)
    top = likely.reshape(len(split), 2, -1) if likely.size else None
    return task.complete(
        Scores(rows[:, 0], prediction, rank, top, every if all_classes else None), split.labels
    )


def _leave_together(error: Exception | None, stop_flags: np.ndarray, workers: Workers) -> None:
    """Raise an error on every worker if a worker has a signal or an error.

    Every worker must call this. `error` is this worker's own error, or None.
    """
    try:
        failed, *signals = sum_over_ranks(
            np.array([error is not None, *stop_flags], np.float32), workers
        )
    except Exception:
        if error is None:
            raise
        raise error from None  # its device may be lost, and then cannot sum either
    if number := agreed_signal(np.array(signals)):
        raise StoppedError(number)
    if failed:
        raise error_of_all(error, workers)
