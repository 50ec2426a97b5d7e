"""What a recording holds, as {path: text}: each array's dtype, shape and hash, and each value.

A path is made of the names of fields, keys and numbers of items: "trace/after/2/fc.weight".
Functions, None and empty containers are left out.
"""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np


def numbers_of(recording: Any) -> dict[str, str]:
    """Return {path: text} of a dataclass, a container or a value."""
    return dict(_leaves(recording, ""))


def text_of(array: np.ndarray) -> str:
    """Return an array's dtype, shape and SHA-256 of bytes."""
    digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
    return f"{array.dtype} {list(array.shape)} {digest}"


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, np.ndarray):
        yield path, text_of(value)
    elif isinstance(value, str | bool | int | float | np.generic):
        yield path, repr(value)
    elif value is not None:
        for key, one in _items(value):
            yield from _leaves(one, f"{path}/{key}".lstrip("/"))


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    if dataclasses.is_dataclass(value):
        yield from ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    elif isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, set | frozenset):
        yield from enumerate(sorted(value, key=repr))
    elif isinstance(value, Sequence):
        yield from enumerate(value)
