"""Arrays that a caller of `resnet_fn.fit` has: checked, in the dtypes that MindSpore computes with."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from resnet_fn.data.dataset import Arrays

_KINDS = "biuf"  # of NumPy's dtypes: bool, integers, floats


def check_arrays(train: Sequence[Any], validation: Sequence[Any]) -> tuple[Arrays, Arrays]:
    """Check two pairs of inputs and targets; float64 becomes float32, and integers [N] become int32 classes.

    Raises:
        ValueError: names "train" or "validation", and what is wrong with it.
    """
    splits = _split(train, "train"), _split(validation, "validation")
    for what, *arrays in zip(("inputs", "targets"), *((split.images, split.labels) for split in splits), strict=True):
        first, other = (f"{array.dtype} {list(array.shape[1:])}" for array in arrays)
        if first != other:
            raise ValueError(f"validation: its {what} are {other} each, those of train {first}; give them alike")
    return splits


def of_classes(split: Arrays) -> bool:
    """Return whether the targets are classes: integers [N]."""
    return split.labels.dtype == np.int32 and split.labels.ndim == 1


def shape_of(array: Any) -> str:
    """Return dtype and shape as text: "float32 [60, 3]"."""
    return f"{array.dtype} {list(array.shape)}".lower()


def _split(pair: Sequence[Any], name: str) -> Arrays:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ValueError(f"{name}: is no pair; give two NumPy arrays, (inputs, targets)")
    inputs, targets = (
        _array(value, f"{name}: its {what}") for value, what in zip(pair, ("inputs", "targets"), strict=True)
    )
    if len(inputs) != len(targets):
        raise ValueError(f"{name}: has {len(inputs)} inputs and {len(targets)} targets; give equally many")
    if targets.ndim == 1 and targets.dtype.kind in "iu":
        # No label may become another one: what int32 does not hold is no class of any net.
        targets = targets.clip(-1, np.iinfo(np.int32).max).astype(np.int32)
    return Arrays(inputs, targets)


def _array(value: Any, what: str) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError as error:  # lists of different lengths
        raise ValueError(f"{what} are no array ({error}); give a NumPy array") from None
    if array.dtype.kind not in _KINDS or not array.ndim or not array.size:
        raise ValueError(f"{what} are {shape_of(array)}; give a NumPy array of numbers, [N, …]")
    if array.dtype == np.float64:
        array = array.astype(np.float32)
    wrong = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(1))
    if len(wrong):
        count = f"{len(wrong)} such sample{'s' * (len(wrong) > 1)}"
        raise ValueError(f"{what} are not finite: sample {wrong[0]} has NaN or infinity ({count}); fix or remove it")
    return array
