"""Bring an array of one framework into the other's layout."""

import itertools
from collections.abc import Callable
from functools import partial

import numpy as np

Move = Callable[[np.ndarray], np.ndarray]


def layout(ours: np.ndarray, theirs: np.ndarray) -> Move:
    """Return a function that reshapes `theirs` or moves an axis to fit `ours`.

    Other sizes stay unchanged.
    """
    if ours.shape == theirs.shape or ours.size != theirs.size:
        return lambda array: array

    def distance(move: Move) -> float:
        apart = ours - move(theirs)
        return float(np.linalg.norm(apart))

    moves = _moves(ours.shape, theirs)
    return min(moves, key=distance)


def _moves(shape: tuple[int, ...], theirs: np.ndarray) -> list[Move]:
    """Return a reshape to `shape`, then each move of one axis that gives `theirs` this shape."""
    moves: list[Move] = [lambda array: array.reshape(shape)]
    if theirs.ndim != len(shape):
        return moves
    axes = range(theirs.ndim)
    for source, destination in itertools.permutations(axes, 2):
        move = partial(np.moveaxis, source=source, destination=destination)
        if move(theirs).shape == shape:
            moves.append(move)
    return moves
