"""Measure dropout that a layer applies by a function, from the layer's outputs."""

import math
from collections.abc import Sequence

import numpy as np

from resnet_fn.parity.record.masks_of_runs import MeasuredMask
from resnet_fn.parity.trace.difference import FITS, norm
from resnet_fn.parity.trace.tree import Arrays


def measured_branch(
    outputs: Sequence[np.ndarray], x: np.ndarray | None, y: np.ndarray
) -> MeasuredMask | None:
    """Return the mask of stochastic depth, or None.

    Stochastic depth multiplies what the layer adds to its input `x` by one number for each sample,
    or for all: 0 or a factor. `y` is the output without dropout.
    """
    if x is None or x.ndim < 2:
        return None
    if x.shape != y.shape or not x.size:
        return None
    rows = []
    for output in outputs:
        factors = _factors(output, x, y)
        if factors is None:
            return None
        rows.append(factors)
    every = np.stack(rows)
    largest = np.abs(every).max()
    smallest = FITS * largest
    is_kept = np.abs(every) > smallest
    kept = every[is_kept]
    if not 0 < kept.size < every.size:
        return None
    if np.ptp(kept) > smallest:
        return None
    dropped = 1 - kept.size / every.size
    first = is_kept[:, :1]
    samples = len(x) if (is_kept != first).any() else 1
    draws = samples * len(every)
    others = (1,) * (x.ndim - 1)
    return MeasuredMask(
        dropped,
        float(kept.mean()),
        (samples, *others),
        draws,
    )


def _factors(output: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray | None:
    """Return the factor of each sample, or None if what the layer adds is changed otherwise."""
    if output.shape != y.shape:
        return None
    flat = (len(x), -1)
    added = np.reshape(y - x, flat)
    exact = np.subtract(output, x, dtype=np.float64)
    change = np.reshape(exact, flat)
    sizes = np.sum(added * added, axis=1)
    if not sizes.all():
        return None
    products = np.sum(change * added, axis=1)
    factors: np.ndarray = products / sizes
    left = change - factors[:, None] * added
    largest = max(norm(change), norm(added))
    return factors if norm(left) <= FITS * largest else None


def whole_output(outputs: Arrays) -> np.ndarray | None:
    """Return the only output of a net, or its outputs of floats [samples, …] as one array
    [samples, n]; None if these have different numbers of samples.

    What is measured here does not depend on their order.
    """
    if len(outputs) == 1:
        return next(iter(outputs.values()))
    rows = []
    for output in outputs.values():
        if output.ndim and output.dtype.kind == "f":
            samples = len(output)
            width = math.prod(output.shape[1:])
            row = output.reshape(samples, width)
            rows.append(row)
    counts = {len(row) for row in rows}
    return np.concatenate(rows, axis=1) if len(counts) == 1 else None


def first_or_whole(outputs: Arrays, whole: bool) -> np.ndarray:
    """Return the first output of a layer, or if `whole`, all of a net (`whole_output`)."""
    if whole:
        array = whole_output(outputs)
        if array is not None:
            return array
    return next(iter(outputs.values()))


def part_and_change(output: np.ndarray, y: np.ndarray, square: float) -> tuple[float, float]:
    """Return the part of `y`, the output without dropout, in an output, and the square of the
    change, both as parts of `square`, computed in float64.
    """
    wide = np.asarray(output, np.float64)
    product = float(np.vdot(wide, y))
    change = norm(wide - y) ** 2
    return product / square, change / square


def response_of(outputs: Sequence[np.ndarray], y: np.ndarray) -> tuple[tuple[float, float], ...]:
    """Return two numbers that differ between distributions of outputs, and their standard errors.

    They are the part of the output without dropout, `y`, in the outputs, and the size of their
    change from it. Both depend neither on the layout of axes nor on which elements are dropped.
    """
    whole = norm(y) ** 2
    if not whole or any(output.shape != y.shape for output in outputs):
        return ()
    parts, changes = [], []
    for output in outputs:
        part, change = part_and_change(output, y, whole)
        parts.append(part)
        changes.append(change)
    return _with_error(parts), _with_error(changes)


def _with_error(numbers: Sequence[float]) -> tuple[float, float]:
    """Return the mean of numbers and its standard error."""
    mean = float(np.mean(numbers))
    deviation = float(np.std(numbers, ddof=1))
    root = math.sqrt(len(numbers))
    return mean, deviation / root
