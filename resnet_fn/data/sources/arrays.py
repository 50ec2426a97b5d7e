"""This module checks arrays that a caller passes to `resnet_fn.fit`, and converts their dtypes for
MindSpore.
"""

import hashlib
from typing import Any

import numpy as np

from resnet_fn.config.wording import first_line, kind_of
from resnet_fn.data.dataset import Arrays

_JOIN = "join them into one array and split it in construct, or write a loop (docs/own_loop.md)"
_KINDS = "biuf"  # kinds of NumPy dtypes that are allowed: bool, integers, floats


def check_arrays(train: Any, validation: Any) -> tuple[Arrays, Arrays]:
    """Check two pairs (inputs, targets), and convert float64 to float32 and integer targets [N] to
    int32 classes.
    """
    first = _split(train, "train")
    other = _split(validation, "validation")
    for part, *both in (
        ("inputs", first.images, other.images),
        ("targets", first.labels, other.labels),
    ):
        expected, got = (f"{array.dtype} {list(array.shape[1:])}" for array in both)
        if expected != got:
            raise ValueError(
                f"validation: {part} of a sample must be {expected}, as in train, but they are "
                f"{got}"
            )
    return first, other


def are_classes(targets: np.ndarray) -> bool:
    """Return True if targets are class labels, int32 [N].

    `check_arrays` must have converted the targets.
    """
    return targets.ndim == 1 and targets.dtype == np.int32


def describe(array: Any) -> str:
    """Return the dtype and shape of an array or tensor as text, for example "float32 [60, 3]"."""
    return f"{array.dtype} {list(array.shape)}".lower()


def digest(*splits: Arrays) -> str:
    """Return the SHA-256 of the values, dtypes and shapes of all arrays in `splits`."""
    result = hashlib.sha256()
    for split in splits:
        for array in (split.images, split.labels):
            result.update(describe(array).encode())
            result.update(np.ascontiguousarray(array).data)
    return result.hexdigest()


def _split(pair: Any, name: str) -> Arrays:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ValueError(
            f"{name}: must be a pair of NumPy arrays, (inputs, targets), {_but_is(pair)}"
        )
    if several := _number_of_inputs(*pair):
        raise ValueError(
            f"{name}: has {several} arrays of inputs, but fit gives the net one; {_JOIN}"
        )
    inputs = _array(pair[0], f"{name}: inputs")
    targets = _array(pair[1], f"{name}: targets")
    if len(inputs) != len(targets):
        raise ValueError(
            f"{name}: has {len(inputs)} inputs and {len(targets)} targets; give one target for "
            "each input"
        )
    if targets.ndim == 1 and targets.dtype.kind in "iu":
        wrong = np.flatnonzero((targets < 0) | (targets > np.iinfo(np.int32).max))
        if len(wrong):
            fix = 'fix the labels, or give targets.astype("float32") with a loss of your own'
            label = targets[wrong[0]]
            raise ValueError(
                f"{name}: sample {wrong[0]} has label {label}, but labels must be in "
                f"0..2147483647; {fix}"
            )
        targets = targets.astype(np.int32)
    return Arrays(inputs, targets)


def _but_is(value: Any) -> str:
    """Return what a caller gave in place of a pair of arrays, and how to make the pair."""
    if isinstance(value, tuple | list) and len(value) > 2 and all(map(_is_array, value)):
        return f"but there are {len(value)} arrays; {_JOIN}"
    if isinstance(value, dict):
        return "but is a dict; give (dict[inputs], dict[targets])"
    is_data = hasattr(value, "__iter__") or hasattr(value, "__getitem__")
    if _is_array(value) or isinstance(value, str) or not is_data:
        return f"but is {kind_of(value)}"
    batches = any(base.__name__ == "DataLoader" for base in type(value).__mro__)
    first, second = ("np.concatenate",) * 2 if batches else ("np.stack", "np.array")
    collect = f"give ({first}([x for x, _ in data]), {second}([y for _, y in data]))"
    if hasattr(value, "create_tuple_iterator"):  # a data set of MindSpore
        collect = "collect the arrays of data.create_tuple_iterator(output_numpy=True)"
    return f"but is {kind_of(value)}; {collect}"


def _number_of_inputs(inputs: Any, targets: Any) -> int:
    """Return the number of arrays if `inputs` are several arrays, each with all samples, else 0."""
    parts = list(inputs.values()) if isinstance(inputs, dict) else inputs
    if not isinstance(parts, tuple | list) or not parts or not all(map(_is_array, parts)):
        return 0
    count = len(targets) if hasattr(targets, "__len__") else 0
    # A list of as many arrays as targets has an array for each sample.
    whole = len(parts) != count and all(len(part) == count for part in parts)
    return len(parts) if isinstance(inputs, dict) or whole else 0


def _is_array(value: Any) -> bool:
    return hasattr(value, "dtype") and bool(getattr(value, "ndim", 0))


def how_to_make_classes(targets: np.ndarray) -> str:
    """Return how to make classes, int [N], of targets that hold them in another form, or ""."""
    if targets.ndim == 2 and targets.shape[1] == 1 and targets.dtype.kind in "iu":
        return "give targets[:, 0]"
    if targets.ndim == 2 and np.isin(targets, (0, 1)).all() and (targets.sum(1) == 1).all():
        return "if they are one-hot, give targets.argmax(1)"
    if targets.ndim == 1 and (targets == np.floor(targets)).all():
        return "if they are classes, give targets.astype(int)"
    return ""


def _array(value: Any, name: str) -> np.ndarray:
    try:
        array = np.asarray(value)
    except Exception as error:  # lists of different lengths; torch's tensors raise several types
        of_torch = kind_of(value).endswith("of torch")
        fix = "tensor.detach().cpu().float().numpy()" if of_torch else "a NumPy array"
        raise ValueError(f"{name} are not an array ({first_line(error)}); give {fix}") from None
    if array.dtype.kind in "US":
        raise ValueError(
            f"{name} are {describe(array)}, which are texts; "
            "give numbers, as np.unique(texts, return_inverse=True)[1] makes them"
        )
    if (
        array.dtype.kind not in _KINDS
        or array.dtype.itemsize > 8
        or not array.ndim
        or not array.size
    ):
        raise ValueError(
            f"{name} are {describe(array)}; give a non-empty array of numbers with at most 64 bits "
            "each"
        )
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype == np.float64:
        array = array.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(1))
    if len(bad):
        raise ValueError(
            f"{name} are not finite in {len(bad)} samples, first in sample {bad[0]}; fix these "
            "samples"
        )
    return array
