"""Gather what several workers of MindSpore computed."""

import numpy as np

from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.tree import Arrays
from resnet_fn.runtime.workers import Workers, sum_over_ranks


def merged_outputs(outputs: Arrays, plan: Plan, workers: Workers) -> Arrays:
    """Return the last worker's outputs or, without micro-batches, the outputs of the whole batch,
    as `ranks.merge` does.
    """
    if workers.size == 1:
        return outputs
    whole = plan.accumulate % workers.size > 0
    merged = {}
    for name, array in outputs.items():
        rows = gathered(array, workers)
        merged[name] = np.concatenate(rows) if whole and array.ndim else rows[-1]
    return merged


def gathered(array: np.ndarray, workers: Workers) -> np.ndarray:
    """Return the arrays of all workers, in the order of ranks: each adds its row to zeros."""
    rows = np.zeros((workers.size, *array.shape), np.float32)
    rows[workers.rank] = array
    return sum_over_ranks(rows, workers).astype(array.dtype)
