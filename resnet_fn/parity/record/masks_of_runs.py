"""Recognise the dropout mask in a layer's outputs on ones."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from resnet_fn.parity.trace.difference import FITS

_SIGMAS = 6.0  # how many standard errors a measured probability may be off


class MeasuredMask(NamedTuple):
    """What a mask drops."""

    dropped: float  # the part that is zero
    scale: float  # the factor of what is kept
    shape: tuple[int, ...]  # 1 along axes on which the mask does not depend
    draws: int  # how many independent numbers show `dropped`


def measured_mask(outputs: Sequence[np.ndarray], shape: tuple[int, ...]) -> MeasuredMask | None:
    """Return the mask that the outputs of ones of this shape show, or None."""
    if any(output.shape != shape for output in outputs):
        return None
    for output in outputs:
        kept = output[output != 0]
        if not 0 < kept.size < output.size:
            continue
        if not _are_equal(kept):
            continue
        sizes = []
        for axis, size in enumerate(shape):
            first = output.take([0], axis)
            if np.array_equal(output, np.broadcast_to(first, shape)):
                sizes.append(1)
            else:
                sizes.append(size)
        dropped = 1 - kept.size / output.size
        return MeasuredMask(
            dropped,
            float(kept[0]),
            tuple(sizes),
            math.prod(sizes),
        )
    return _of_whole_calls(outputs)


def _of_whole_calls(outputs: Sequence[np.ndarray]) -> MeasuredMask | None:
    """Return a mask of one number, if each output is either all zeros or one other number."""
    numbers = []
    for output in outputs:
        if not _are_equal(output):
            return None
        numbers.append(float(output.flat[0]))
    kept = [number for number in numbers if number]
    draws = len(numbers)
    if not 0 < len(kept) < draws:
        return None
    if not _are_equal(np.array(kept)):
        return None
    dropped = 1 - len(kept) / draws
    shape = (1,) * outputs[0].ndim
    return MeasuredMask(dropped, kept[0], shape, draws)


def _are_equal(numbers: np.ndarray) -> bool:
    """Return whether all numbers are the first one."""
    first = abs(numbers.flat[0])
    spread = np.ptp(numbers)
    return bool(spread <= FITS * first)


def nearest_share(shares: Sequence[float], part: float, count: int) -> float:
    """Return the first probability that `part` zeros of `count` fit, or else `part`."""
    for share in shares:
        variance = share * (1 - share) / count
        error = math.sqrt(variance)
        if abs(part - share) <= _SIGMAS * error:
            return share
    return round(part, 2)
