"""This module checks arrays that a caller passes to `resnet_fn.fit`, and converts their dtypes for MindSpore."""

import hashlib
from typing import Any

import numpy as np

from resnet_fn.data.dataset import Arrays

_KINDS = "biuf"  # kinds of NumPy dtypes that are allowed: bool, integers, floats


def check_arrays(train: Any, validation: Any) -> tuple[Arrays, Arrays]:
    """Check two pairs (inputs, targets), and convert float64 to float32 and integer targets [N] to int32 classes."""
    first, other = _split(train, "train"), _split(validation, "validation")
    for part, one, two in (("inputs", first.images, other.images), ("targets", first.labels, other.labels)):
        expected, got = (f"{array.dtype} {list(array.shape[1:])}" for array in (one, two))
        if expected != got:
            raise ValueError(f"validation: {part} of a sample must be {expected}, as in train, but they are {got}")
    return first, other


def are_classes(targets: np.ndarray) -> bool:
    """Return True if targets are class labels, int32 [N]. `check_arrays` must have converted the targets."""
    return targets.ndim == 1 and targets.dtype == np.int32


def describe(array: Any) -> str:
    """Return the dtype and shape of an array or tensor as text, for example "float32 [60, 3]"."""
    return f"{array.dtype} {list(array.shape)}".lower()


def digest(*splits: Arrays) -> str:
    """Return the SHA-256 of the values, dtypes and shapes of all arrays in `splits`."""
    result = hashlib.sha256()
    for array in (array for split in splits for array in (split.images, split.labels)):
        result.update(describe(array).encode())
        result.update(np.ascontiguousarray(array).data)
    return result.hexdigest()


def _split(pair: Any, name: str) -> Arrays:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ValueError(f"{name}: must be a pair of NumPy arrays, (inputs, targets)")
    inputs, targets = _array(pair[0], f"{name}: inputs"), _array(pair[1], f"{name}: targets")
    if len(inputs) != len(targets):
        raise ValueError(f"{name}: has {len(inputs)} inputs and {len(targets)} targets; give one target for each input")
    if targets.ndim == 1 and targets.dtype.kind in "iu":
        wrong = np.flatnonzero((targets < 0) | (targets > np.iinfo(np.int32).max))
        if len(wrong):
            fix = 'fix the labels, or give targets.astype("float32") with a loss of your own'
            label = targets[wrong[0]]
            raise ValueError(f"{name}: sample {wrong[0]} has label {label}, but labels must be in 0..2147483647; {fix}")
        targets = targets.astype(np.int32)
    return Arrays(inputs, targets)


def _array(value: Any, name: str) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError as error:  # lists of different lengths
        raise ValueError(f"{name} are not an array ({error}); give a NumPy array") from None
    if array.dtype.kind not in _KINDS or array.dtype.itemsize > 8 or not array.ndim or not array.size:
        raise ValueError(f"{name} are {describe(array)}; give a non-empty array of numbers with at most 64 bits each")
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype == np.float64:
        array = array.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(1))
    if len(bad):
        raise ValueError(f"{name} are not finite in {len(bad)} samples, first in sample {bad[0]}; fix these samples")
    return array
