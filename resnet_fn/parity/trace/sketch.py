"""Describe an array by few numbers: its norm, sums, and numbers at random places.

Each sum adds a part of the array with random signs, so that all numbers of an array count, and the
expectation of the squared sums of a difference is the difference's squared norm.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from resnet_fn.parity.trace.difference import are_integers, in_range, norm
from resnet_fn.parity.trace.drawn import generator

SUMS, SAMPLES = 3, 2

FEW = 1 + SUMS + SAMPLES  # an array of so few numbers is kept as it is

_LARGE = 5e3  # numbers of this size hide others, unless most are so large

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


class _Places(NamedTuple):
    signs: np.ndarray  # of each number of the array
    samples: np.ndarray  # the flat indices of the sampled numbers


def count(shape: Sequence[int], whole: int = FEW) -> int:
    """Return how many numbers the sketch of an array has."""
    size = math.prod(shape)
    return size if size <= whole else FEW


def sketch(array: np.ndarray, seed: int, name: str, whole: int = FEW) -> Sketch:
    """Return the sketch of an array. The seed and the name choose places and signs.

    An array of up to `whole` numbers is kept as it is.
    """
    flat = in_range(array).ravel()
    numbers = flat
    if flat.size > whole:
        places = _places(seed, name, flat.size)
        usual = np.where(_hidden(flat), 0.0, flat)
        sums = _sums(usual, places.signs)
        numbers = np.concatenate([[norm(usual)], sums, flat[places.samples]])
    with np.errstate(over="ignore"):
        return Sketch(tuple(array.shape), numbers.astype(np.float32))


def error_of(array: np.ndarray, kept: Sketch, seed: int, name: str) -> float:
    """Return how far the sketch of an array is from the sketch `kept`."""
    own = sketch(array, seed, name).numbers
    return norm(np.nan_to_num(own - kept.numbers))


def _places(seed: int, name: str, size: int) -> _Places:
    bits = generator(seed, name).random_raw(SAMPLES + math.ceil(size / 64))
    signs = np.unpackbits(bits[SAMPLES:].astype("<u8").view(np.uint8), count=size)
    samples = bits[:SAMPLES] % np.uint64(size)
    return _Places(np.where(signs, 1.0, -1.0), samples.astype(np.int64))


def _hidden(flat: np.ndarray) -> np.ndarray:
    """Return a mask of the numbers that no sum has: those that are not finite, or so large, as −1e4
    in a mask, that they would hide all others.
    """
    hidden = ~(np.abs(flat) < _LARGE)
    if np.count_nonzero(hidden) > flat.size // 2:
        hidden = ~np.isfinite(flat)
    return hidden


def _sums(usual: np.ndarray, signs: np.ndarray) -> np.ndarray:
    signed = usual * signs
    return np.array([signed[start::SUMS].sum() for start in range(SUMS)])


def nearest(array: np.ndarray, kept: Sketch, seed: int, name: str) -> np.ndarray:
    """Return an array near to `array`, of the same shape, that has the sketch `kept`.

    It is `array` itself if the sketches are equal up to the rounding of what is kept, or a multiple
    of it if this explains the sketch. Otherwise it is as far from `array` as the sums show.
    """
    flat = in_range(array).ravel()
    numbers = kept.numbers.astype(np.float64)
    if kept.is_whole:
        return _of_whole(array, flat, kept)
    own = sketch(array, seed, name).numbers.astype(np.float64)
    if _equal(own, numbers):
        return array
    if are_integers(array):
        return _changed(array)
    if factor := _factor(own, numbers):
        return factor * in_range(array)
    places = _places(seed, name, flat.size)
    result, usual = flat.copy(), ~_hidden(flat)
    result[places.samples] = numbers[1 + SUMS :]
    apart = numbers[1 : 1 + SUMS] - _sums(np.where(usual, result, 0.0), places.signs)
    # as parts of the numbers themselves, so that small ones stay small
    sizes = np.where(usual, np.abs(result), 0.0)
    if not sizes.any():
        sizes = usual.astype(np.float64)
    signed = sizes * places.signs
    for start in range(SUMS):
        part = signed[start::SUMS]
        result[start::SUMS] += apart[start] / (norm(part) or 1.0) * part
    size = norm(result[usual])
    if size and not _equal(np.array([size]), numbers[:1]):
        result[usual] *= numbers[0] / size
    result[places.samples] = numbers[1 + SUMS :]
    return result.reshape(array.shape)


def _of_whole(array: np.ndarray, flat: np.ndarray, kept: Sketch) -> np.ndarray:
    """Return the array that was kept as it is."""
    if np.array_equal(flat.astype(np.float32), kept.numbers, equal_nan=True):
        return array
    whole = kept.numbers.astype(array.dtype if are_integers(array) else np.float64)
    return whole.reshape(array.shape)


def _changed(array: np.ndarray) -> np.ndarray:
    """Return integers of which one is another: which ones are others is not known."""
    changed = array.copy()
    changed.flat[0] = changed.flat[0] == 0
    return changed


def _equal(own: np.ndarray, kept: np.ndarray) -> bool:
    finite = np.isfinite(own) & np.isfinite(kept)
    if not np.array_equal(own[~finite], kept[~finite], equal_nan=True):
        return False
    sizes = np.maximum(np.abs(own), np.abs(kept))
    return bool((np.abs(own - kept) <= _UNIT * sizes)[finite].all())


def _factor(own: np.ndarray, kept: np.ndarray) -> float:
    """Return c if `kept` is the sketch of c times the array of `own`, else 0."""
    if not (np.isfinite(own).all() and np.isfinite(kept).all()):
        return 0.0
    factor = float(own[1:] @ kept[1:]) / (float(own[1:] @ own[1:]) or 1.0)
    multiple = factor * own
    multiple[0] = abs(multiple[0])
    fits = norm(multiple - kept) <= _FITS * norm(kept)
    return factor if fits and abs(factor - 1) > _NO_FACTOR else 0.0
