"""Bring an array of one framework into the other's layout."""

import itertools
import operator
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
    """Return a reshape to `shape`, then each move of one axis that gives `reference` this shape.

    After a move, neighbouring axes may be merged or split, as in [n, c, h, w] → [n, h·w, c].
    """
    made: list[Move] = [lambda array: array.reshape(shape)]
    axes = range(reference.ndim)
    for source, destination in itertools.permutations(axes, 2):
        move = partial(np.moveaxis, source=source, destination=destination)
        moved = move(reference).shape
        if moved == shape:
            made.append(move)
        elif len(moved) != len(shape) and _have_common_axes(moved, shape):
            made.append(partial(_moved_and_reshaped, move=move, shape=shape))
    return made


def _have_common_axes(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Return whether merging neighbouring axes of the longer shape gives the other one."""
    products = [{*itertools.accumulate(shape, operator.mul)} for shape in (a, b)]
    fewer, more = sorted(products, key=len)
    return fewer <= more


def _moved_and_reshaped(array: np.ndarray, move: Move, shape: tuple[int, ...]) -> np.ndarray:
    return move(array).reshape(shape)
