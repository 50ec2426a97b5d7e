"""Describe an array by few numbers: its norm, sums, and numbers at random places.

Each sum adds a part of the array with random signs, so that all numbers of an array count, and the
expectation of the squared sums of a difference is the difference's squared norm.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from resnet_fn.parity.trace.difference import are_integers, in_range, mask_levels, norm
from resnet_fn.parity.trace.drawn import generator

SUMS, SAMPLES = 3, 2

FEW = 1 + SUMS + SAMPLES  # an array of so few numbers is kept as it is

# Numbers of this size hide others. If most are so large, only a mask's constants do.
_LARGE = 5e3

_UNIT = 2.0**-23  # the rounding of what is kept in float32

_FITS = 1e-5  # the relative error of a sketch that is a multiple of another one

_NO_FACTOR = 1e-3  # a factor so near to 1 may be chance


class Sketch(NamedTuple):
    """What is kept of one array: its norm, `SUMS` sums and `SAMPLES` numbers, or all numbers."""

    shape: tuple[int, ...]
    numbers: np.ndarray  # float32

    @property
    def is_whole(self) -> bool:
        """Whether all numbers of the array are kept."""
        return len(self.numbers) == math.prod(self.shape)


def count(shape: Sequence[int], whole: int = FEW) -> int:
    """Return how many numbers the sketch of an array has."""
    size = math.prod(shape)
    return size if size <= whole else FEW


@dataclass
class _Places:
    """What the seed and the name choose for an array of some size."""

    signs: np.ndarray  # 1 or −1 for each number of the array
    samples: np.ndarray  # the flat indices of the sampled numbers

    def sums(self, flat: np.ndarray) -> np.ndarray:
        """Return the sums of numbers with signs: each sum takes one number of `SUMS`."""
        signed = flat * self.signs
        sums = np.zeros(SUMS)
        for first in range(SUMS):
            part = signed[first::SUMS]
            sums[first] = part.sum()
        return sums

    def with_sums(self, sums: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Return numbers with these sums, each as a part of its number in `sizes`."""
        numbers = sizes * self.signs
        for first in range(SUMS):
            part = numbers[first::SUMS]
            size = norm(part) or 1.0
            part *= sums[first] / size
        return numbers


def _places(seed: int, name: str, size: int) -> _Places:
    words = math.ceil(size / 64)
    bits = generator(seed, name).random_raw(SAMPLES + words)
    samples = bits[:SAMPLES] % np.uint64(size)
    of_signs = bits[SAMPLES:].astype("<u8")
    signs = np.unpackbits(of_signs.view(np.uint8), count=size)
    return _Places(2.0 * signs - 1, samples.astype(np.int64))


def sketch(array: np.ndarray, seed: int, name: str, whole: int = FEW) -> Sketch:
    """Return the sketch of an array. The seed and the name choose places and signs.

    An array of up to `whole` numbers is kept as it is.
    """
    flat = in_range(array).ravel()
    numbers = flat
    if flat.size > whole:
        places = _places(seed, name, flat.size)
        usual = _without_hidden(flat)
        size = [norm(usual)]
        samples = flat[places.samples]
        numbers = np.concatenate([size, places.sums(usual), samples])
    with np.errstate(over="ignore"):
        kept = numbers.astype(np.float32)
    return Sketch(tuple(array.shape), kept)


def error_of(array: np.ndarray, kept: Sketch, seed: int, name: str) -> float:
    """Return how far the sketch of an array is from the sketch `kept`."""
    own = sketch(array, seed, name).numbers
    apart = own - kept.numbers
    return norm(np.nan_to_num(apart))


def _hidden(flat: np.ndarray) -> np.ndarray:
    """Return a mask of the numbers that no sum has: those that are not finite, or so large, as −1e4
    in a mask, that they would hide all others.
    """
    sizes = np.abs(flat)
    hidden: np.ndarray = ~(sizes < _LARGE)
    if np.count_nonzero(hidden) > flat.size // 2:
        hidden = ~np.isfinite(flat)
        for level in mask_levels(flat):
            hidden |= level
    return hidden


def hides(array: np.ndarray) -> bool:
    """Return whether an array has numbers that no sum of its sketch has."""
    flat = in_range(array).ravel()
    return bool(_hidden(flat).any())


def _without_hidden(flat: np.ndarray) -> np.ndarray:
    return np.where(_hidden(flat), 0.0, flat)


def nearest(array: np.ndarray, kept: Sketch, seed: int, name: str) -> np.ndarray:
    """Return an array near to `array`, of the same shape, that has the sketch `kept`.

    It is `array` itself if the sketches are equal up to the rounding of what is kept, or a multiple
    of it if this explains the sketch. Otherwise it is as far from `array` as the sums show.
    """
    if kept.is_whole:
        return _of_whole(array, kept)
    own = sketch(array, seed, name).numbers.astype(np.float64)
    numbers = kept.numbers.astype(np.float64)
    if _equal(own, numbers):
        return array
    if are_integers(array):
        return _changed(array)
    wide = in_range(array)
    factor = _factor(own, numbers)
    if factor:
        return factor * wide
    places = _places(seed, name, wide.size)
    return _estimate(wide.ravel(), numbers, places).reshape(array.shape)


def _estimate(flat: np.ndarray, numbers: np.ndarray, places: _Places) -> np.ndarray:
    """Return numbers with this norm, these sums and samples, from those of another array."""
    size = numbers[0]
    sums = numbers[1:-SAMPLES]
    samples = numbers[-SAMPLES:]
    usual = ~_hidden(flat)
    # an array without a usual number shows nothing of the other one
    result = flat.copy() if usual.any() else np.zeros_like(flat)
    result[places.samples] = samples
    known = np.where(usual, result, 0.0)
    # as parts of the numbers themselves, so that small ones stay small
    sizes = np.abs(known)
    if not sizes.any():
        sizes = usual.astype(np.float64)
    apart = sums - places.sums(known)
    result += places.with_sums(apart, sizes)
    before = norm(result[usual])
    if before:
        result[usual] *= size / before
    result[places.samples] = samples
    return result


def _of_whole(array: np.ndarray, kept: Sketch) -> np.ndarray:
    """Return the array that was kept as it is."""
    flat = in_range(array).ravel().astype(np.float32)
    if np.array_equal(flat, kept.numbers, equal_nan=True):
        return array
    dtype = array.dtype if are_integers(array) else np.float64
    return kept.numbers.astype(dtype).reshape(array.shape)


def _changed(array: np.ndarray) -> np.ndarray:
    """Return integers of which one is another: which ones are others is not known."""
    changed = array.copy()
    first = changed.flat[0]
    changed.flat[0] = first == 0
    return changed


def _equal(own: np.ndarray, kept: np.ndarray) -> bool:
    return np.allclose(own, kept, rtol=_UNIT, atol=0, equal_nan=True)


def _factor(own: np.ndarray, kept: np.ndarray) -> float:
    """Return c if `kept` is the sketch of c times the array of `own`, else 0."""
    linear = own[1:]
    square = float(linear @ linear)
    if not square or not np.isfinite(kept).all():
        return 0.0
    factor = float(linear @ kept[1:]) / square
    multiple = factor * own
    multiple[0] = abs(multiple[0])
    error = norm(multiple - kept)
    if not error <= _FITS * norm(kept):
        return 0.0
    return factor if abs(factor - 1) > _NO_FACTOR else 0.0
