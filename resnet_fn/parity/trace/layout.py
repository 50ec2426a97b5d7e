"""Bring an array of one framework into the other's layout."""

import itertools
from collections.abc import Callable
from functools import partial

import numpy as np

Move = Callable[[np.ndarray], np.ndarray]


def layout(port: np.ndarray, reference: np.ndarray) -> Move:
    """Return a function that reshapes `reference` or moves an axis to fit `port`.

    Other sizes stay unchanged.
    """
    if port.shape == reference.shape or port.size != reference.size:
        return lambda array: array

    def distance(move: Move) -> float:
        apart = port - move(reference)
        return float(np.linalg.norm(apart))

    every = moves(port.shape, reference)
    return min(every, key=distance)


def moves(shape: tuple[int, ...], reference: np.ndarray) -> list[Move]:
    """Return a reshape to `shape`, then each move of one axis that gives `reference` this shape."""
    made: list[Move] = [lambda array: array.reshape(shape)]
    if reference.ndim != len(shape):
        return made
    axes = range(reference.ndim)
    for source, destination in itertools.permutations(axes, 2):
        move = partial(np.moveaxis, source=source, destination=destination)
        if move(reference).shape == shape:
            made.append(move)
    return made
