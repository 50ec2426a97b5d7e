"""An error of one worker becomes an error of all workers, so that they save and end together."""

import numpy as np

from resnet_fn.config.cli import one_line
from resnet_fn.data.dataset import BadSampleError
from resnet_fn.runtime.workers import Workers, gather_texts, sum_over_ranks


class WorkerError(ValueError):
    """Raised on every worker if some workers have an error that is not only a bad sample.

    The message contains the errors of all workers. A worker's own error is the cause (`__cause__`).
    """


def error_of_all(error: Exception | None, workers: Workers) -> Exception:
    """Return the error that this worker raises because some workers have an error.

    Every worker must call this function. `error` is this worker's own error, or None.

    Returns:
        With one worker, `error`. Otherwise a BadSampleError if the workers have no other errors,
        else a WorkerError.
    """
    if workers.size == 1:
        assert error is not None
        return error
    is_other = error is not None and not isinstance(error, BadSampleError)
    others = sum_over_ranks(np.array([is_other], np.float32), workers).item()
    # a bad sample's whole text, because a file name can contain a line break
    text = one_line(error) if error is not None and is_other else str(error or "")
    texts = gather_texts(text, workers)
    message = "; ".join(f"rank {rank}: {text}" for rank, text in enumerate(texts) if text)
    result = WorkerError(message) if others else BadSampleError(message)
    result.__cause__ = error
    return result
