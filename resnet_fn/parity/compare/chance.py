"""Which elements of a weight Adam moves by chance, and how far.

Adam changes a weight by up to the learning rate even if the gradient is only rounding.
"""

from typing import NamedTuple

import numpy as np

from resnet_fn.parity.trace.tree import Arrays

CHANCE_SHARE, CHANCE_SIZE = 0.01, 1e-6
"""A gradient's element is only rounding if both sides differ by more than the first fraction of the
element, or if the element is at most the second fraction of the largest: rounding is 6e-8 of the
numbers that were added up, so it leaves no digit there. docs/parity.md#adam
"""

CHANCE_MOVES = 2.0
"""Where a gradient's element is only rounding, the weight's may be apart by so many times the
stage's largest change: the two sides may move it in opposite directions. docs/parity.md#adam
"""


class ByChance(NamedTuple):
    """What the optimizer changes by chance, because a gradient is only rounding."""

    largest: float  # how far both sides may be apart in such an element
    masks: Arrays  # the elements that it may change so, by the array's name


def chance_elements(port: np.ndarray, reference: np.ndarray, only_rounding: bool) -> np.ndarray:
    """Return a mask of a gradient's elements that are only rounding.

    `only_rounding` is whether the whole gradient is: then all its elements are marked.
    """
    size = np.abs(reference)
    # An element that is 0 in the reference, as in a row that no sample uses, is not small by
    # rounding. But by the second condition, any other number of the port's there counts as chance.
    small = (size > 0) & (size <= CHANCE_SIZE * size.max(initial=0))
    return small | (np.abs(port - reference) > CHANCE_SHARE * size) | only_rounding


def without_chance(
    port: np.ndarray, reference: np.ndarray, by_chance: np.ndarray, largest: float
) -> np.ndarray:
    """Return the port's array with the reference's numbers where chance moves the two apart.

    Adam moves a weight by up to the learning rate even if its gradient is only rounding, and then
    rounding decides in which direction. So such elements (the mask `by_chance`) count as equal if
    they are at most `largest` apart.
    """
    return np.where(by_chance & (np.abs(port - reference) <= largest), reference, port)
