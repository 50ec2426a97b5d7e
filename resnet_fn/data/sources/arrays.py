"""Arrays that a caller passes to `resnet_fn.fit` are checked and converted to dtypes that MindSpore computes with."""

import hashlib
from typing import Any

import numpy as np

from resnet_fn.data.dataset import Arrays

_KINDS = "biuf"  # kinds of NumPy dtypes that are allowed: bool, integers, floats


def check_arrays(train: Any, validation: Any) -> tuple[Arrays, Arrays]:
    """Check two pairs of inputs and targets, else a ValueError; float64 becomes float32, integers [N] int32 classes."""
    first, other = _split(train, "train"), _split(validation, "validation")
    pairs = {"inputs": (first.images, other.images), "targets": (first.labels, other.labels)}
    for what, arrays in pairs.items():
        of_train, of_validation = (f"{array.dtype} {list(array.shape[1:])}" for array in arrays)
        if of_train != of_validation:
            wrong = f"a sample's {what} are {of_validation}, those of train {of_train}"
            raise ValueError(f"validation: {wrong}; give the same shapes and dtypes")
    return first, other


def are_classes(targets: np.ndarray) -> bool:
    """Return whether targets, as `check_arrays` returned them, are class labels."""
    return targets.ndim == 1 and targets.dtype == np.int32


def describe(array: Any) -> str:
    """Return the dtype and shape of an array or tensor as text: "float32 [60, 3]"."""
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
        raise ValueError(f"{name}: is no pair; give two NumPy arrays, (inputs, targets)")
    inputs, targets = _array(pair[0], f"{name}: its inputs"), _array(pair[1], f"{name}: its targets")
    if len(inputs) != len(targets):
        raise ValueError(f"{name}: has {len(inputs)} inputs and {len(targets)} targets; give equally many")
    if targets.ndim == 1 and targets.dtype.kind in "iu":
        wrong = np.flatnonzero((targets < 0) | (targets > np.iinfo(np.int32).max))
        if len(wrong):
            fix = 'fix the labels, or give targets.astype("float32") with a loss of your own'
            raise ValueError(f"{name}: sample {wrong[0]} has label {targets[wrong[0]]}; classes count from 0; {fix}")
        targets = targets.astype(np.int32)
    return Arrays(inputs, targets)


def _array(value: Any, what: str) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError as error:  # lists of different lengths
        raise ValueError(f"{what} are no array ({error}); give a NumPy array") from None
    if array.dtype.kind not in _KINDS or array.dtype.itemsize > 8 or not array.ndim or not array.size:
        raise ValueError(f"{what} are {describe(array)}; give a NumPy array of numbers of at most 64 bits, [N, …]")
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype == np.float64:
        array = array.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(1))
    if len(bad):
        raise ValueError(f"{what} are not finite in {len(bad)} samples, first {bad[0]}; fix or remove them")
    return array
