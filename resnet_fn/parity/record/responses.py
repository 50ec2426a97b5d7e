"""Measure dropout that a layer applies by a function, from the layer's outputs."""

import math
from collections.abc import Sequence

import numpy as np

from resnet_fn.parity.record.masks_of_runs import MeasuredMask
from resnet_fn.parity.trace.difference import FITS, norm


def measured_branch(
    outputs: Sequence[np.ndarray], x: np.ndarray | None, y: np.ndarray
) -> MeasuredMask | None:
    """Return the mask of stochastic depth, or None.

    Stochastic depth multiplies what the layer adds to its input `x` by one number for each sample,
    or for all: 0 or a factor. `y` is the output without dropout.
    """
    if x is None or x.shape != y.shape or x.ndim < 2:
        return None
    if any(output.shape != y.shape for output in outputs):
        return None
    added = (y - x).reshape(len(x), -1)
    sizes = (added**2).sum(1)
    if not sizes.all():
        return None
    rows = []
    for output in outputs:
        change = (np.asarray(output, np.float64) - x).reshape(len(x), -1)
        factors = (change * added).sum(1) / sizes
        if norm(change - factors[:, None] * added) > FITS * (norm(change) or norm(added)):
            return None
        rows.append(factors)
    every = np.stack(rows)
    largest = float(np.abs(every).max())
    is_kept = np.abs(every) > FITS * largest
    kept = every[is_kept]
    if not 0 < kept.size < every.size or np.ptp(kept) > FITS * largest:
        return None
    of_samples = bool((is_kept != is_kept[:, :1]).any())
    count = every.size if of_samples else len(every)
    shape = (len(x) if of_samples else 1, *(1,) * (x.ndim - 1))
    return MeasuredMask(1 - kept.size / every.size, float(kept.mean()), shape, count)


def response_of(outputs: Sequence[np.ndarray], y: np.ndarray) -> tuple[tuple[float, float], ...]:
    """Return two numbers that tell distributions of outputs apart, each with its standard error.

    They are the part of the output without dropout, `y`, in the outputs, and the size of their
    change from it. Both depend neither on the layout of axes nor on which elements are dropped.
    """
    whole = norm(y) ** 2
    if not whole or any(output.shape != y.shape for output in outputs):
        return ()
    parts = [float(np.vdot(output, y)) / whole for output in outputs]
    changes = [(norm(output - y) ** 2) / whole for output in outputs]
    root = math.sqrt(len(outputs))
    pairs = []
    for one in (parts, changes):
        pairs.append((float(np.mean(one)), float(np.std(one, ddof=1)) / root))
    return tuple(pairs)
