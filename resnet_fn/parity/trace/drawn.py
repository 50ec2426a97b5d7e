"""Draw arrays from a seed, so that a file needs to hold only the range of their numbers.

The numbers come from the raw bits of NumPy's PCG64, whose stream is the same in each version of
NumPy, and from one product and one sum in float32. docs/parity.md#a-small-trace has the formula.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from resnet_fn.parity.trace.constants import SMALL, is_constant
from resnet_fn.runtime.disk import sha256

_DIGITS = 8  # so many hexadecimal digits of a SHA-256 show that an array was drawn otherwise


class Range(NamedTuple):
    """The numbers of an array are drawn between these."""

    low: float
    high: float


def generator(seed: int, name: str) -> np.random.PCG64:
    """Return the source of random bits of one array."""
    entropy = [seed, *name.encode()]
    return np.random.PCG64(np.random.SeedSequence(entropy))


def draw(seed: int, name: str, shape: Sequence[int], limits: Range) -> np.ndarray:
    """Return float32 numbers of a uniform distribution: low + (high − low) · u, where u is the
    upper 24 of each 64 bits of `generator`, times 2^-24.
    """
    size = math.prod(shape)
    bits = generator(seed, name).random_raw(size)
    upper = bits >> np.uint64(40)
    fractions = upper.astype(np.float32)
    fractions *= np.float32(2**-24)
    low = np.float32(limits.low)
    high = np.float32(limits.high)
    drawn: np.ndarray = low + (high - low) * fractions
    return drawn.reshape(shape)


def range_of(array: np.ndarray) -> Range:
    """Return the range of a uniform distribution with the mean and the standard deviation of an
    array, which has no number of another sign if the array has none.

    Equal numbers would hide how a net uses them, so they get a range, too. A single number is kept.
    """
    if is_constant(array):
        constant = float(array.flat[0])
        return _around(constant, array.size)
    wide = array.astype(np.float64)
    mean = float(wide.mean())
    half = math.sqrt(3) * float(wide.std())
    low = mean - half
    high = mean + half
    least = float(wide.min())
    largest = float(wide.max())
    if least >= 0:
        low = max(low, least)
    if largest <= 0:
        high = min(high, largest)
    return _in_few_digits(low, high)


def _around(constant: float, size: int) -> Range:
    """Return the range for equal numbers, as in `draw_constants`."""
    if size == 1:
        return Range(constant, constant)
    if constant == 0:
        return _in_few_digits(-0.3, 0.3)
    if abs(constant) < SMALL:
        constant = math.copysign(0.5, constant)
        return _in_few_digits(0.4 * constant, 1.6 * constant)
    return _in_few_digits(0.5 * constant, 1.5 * constant)


def _in_few_digits(low: float, high: float) -> Range:
    return Range(float(f"{low:.3g}"), float(f"{high:.3g}"))


def digest(array: np.ndarray) -> str:
    """Return the first digits of the SHA-256 of an array's numbers."""
    plain = np.ascontiguousarray(array)
    return sha256(plain.tobytes())[:_DIGITS]
