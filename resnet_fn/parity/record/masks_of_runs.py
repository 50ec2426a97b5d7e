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
        if not 0 < kept.size < output.size or np.ptp(kept) > FITS * abs(kept[0]):
            continue
        sizes = []
        for axis, size in enumerate(shape):
            varies = bool((output != output.take([0], axis)).any())
            sizes.append(size if varies else 1)
        dropped = 1 - kept.size / output.size
        return MeasuredMask(dropped, float(kept[0]), tuple(sizes), math.prod(sizes))
    return _of_whole_calls(outputs)


def _of_whole_calls(outputs: Sequence[np.ndarray]) -> MeasuredMask | None:
    """Return a mask of one number, if each output is either all zeros or one other number."""
    numbers = [float(output.flat[0]) for output in outputs]
    if any(np.ptp(output) > FITS * abs(one) for output, one in zip(outputs, numbers, strict=True)):
        return None
    kept = [one for one in numbers if one]
    if not 0 < len(kept) < len(numbers) or np.ptp(kept) > FITS * abs(kept[0]):
        return None
    dropped = 1 - len(kept) / len(numbers)
    return MeasuredMask(dropped, kept[0], (1,) * outputs[0].ndim, len(numbers))


def nearest_share(shares: Sequence[float], part: float, count: int) -> float:
    """Return the first probability that `part` zeros of `count` fit, or else `part`."""
    for share in shares:
        variance = share * (1 - share) / count
        error = math.sqrt(variance)
        if abs(part - share) <= _SIGMAS * error:
            return share
    return round(part, 2)
