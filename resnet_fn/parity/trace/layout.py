"""Bring an array of one framework into the other's layout."""

from collections.abc import Callable
from functools import partial

import numpy as np


def layout(ours: np.ndarray, theirs: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that reshapes `theirs` or moves an axis to fit `ours`.

    Other sizes stay unchanged.
    """
    if ours.shape == theirs.shape or ours.size != theirs.size:
        return lambda array: array
    axes = range(ours.ndim if ours.ndim == theirs.ndim else 0)
    moved = [partial(np.moveaxis, source=a, destination=b) for a in axes for b in axes if a != b]
    candidates: list[Callable[[np.ndarray], np.ndarray]] = [lambda array: array.reshape(ours.shape)]
    candidates += [move for move in moved if move(theirs).shape == ours.shape]
    return min(candidates, key=lambda candidate: float(np.linalg.norm(ours - candidate(theirs))))
