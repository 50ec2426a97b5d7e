"""Bring an array of one framework into the other's layout."""

import itertools
import operator
from collections.abc import Callable
from functools import partial

import numpy as np

Move = Callable[[np.ndarray], np.ndarray]
Shape = tuple[int, ...]


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


def moves(shape: Shape, reference: np.ndarray) -> list[Move]:
    """Return a reshape to `shape`, then each move of one axis that gives `reference` this shape.

    After a move, neighbouring axes may be merged or split, as in [n, c, h, w] → [n, h·w, c].
    """
    made: list[Move] = [lambda array: array.reshape(shape)]
    has_equal_count = reference.ndim == len(shape)
    axes = range(reference.ndim)
    for source, destination in itertools.permutations(axes, 2):
        move = partial(np.moveaxis, source=source, destination=destination)
        moved = move(reference).shape
        if moved == shape:
            made.append(move)
        elif not has_equal_count and _are_merged(moved, shape):
            moved_and_reshaped = partial(_moved_and_reshaped, move=move, shape=shape)
            made.append(moved_and_reshaped)
    return made


def _are_merged(a: Shape, b: Shape) -> bool:
    """Return whether merging neighbouring axes of one shape gives the other."""
    of_a = _products(a)
    of_b = _products(b)
    return of_a <= of_b or of_b <= of_a


def _products(shape: Shape) -> set[int]:
    """Return the products of the first one, two, … sizes."""
    products = itertools.accumulate(shape, operator.mul)
    return set(products)


def _moved_and_reshaped(array: np.ndarray, move: Move, shape: Shape) -> np.ndarray:
    moved = move(array)
    return moved.reshape(shape)
