"""Give the port's arrays the reference's names and layout."""

import math
from collections.abc import Mapping

import numpy as np

from resnet_fn.parity.pair.name_map import NameMap, Shape
from resnet_fn.parity.trace.tree import Arrays


def as_in_reference(
    names: NameMap, port: Mapping[str, np.ndarray], shapes: Mapping[str, Shape]
) -> Arrays:
    """Return the reference's arrays (`shapes`) with the port's numbers, the inverse of
    `NameMap.rename`.

    An array that the port does not have as a whole is left out.
    """
    inverse = _Inverse(names, shapes)
    for name in names.parameters:
        if name in port:
            inverse.put(name, port[name])
    whole: Arrays = {}
    for name, array in inverse.made.items():
        known = inverse.known[name]
        if known.all():
            whole[name] = array
    return whole


class _Inverse:
    """The reference's arrays, which are filled from the port's."""

    def __init__(self, names: NameMap, shapes: Mapping[str, Shape]) -> None:
        self.names, self.shapes = names, shapes
        self.made: Arrays = {}
        self.known: Arrays = {}  # masks of the numbers that are filled

    def put(self, name: str, own: np.ndarray) -> None:
        """Fill in the numbers of one array of the port, unless it is a sum."""
        source = self.names.parameters[name]
        if source.added:
            return
        # each number of the reference's arrays gets a number of its own, from 1, so that it keeps
        # its sign
        begin = 1
        first_of: dict[str, int] = {}
        numbered: Arrays = {}
        for alias in source.names:
            array_name = self.names.one_of(alias, self.shapes)
            if array_name is None:
                return
            shape = self.shapes[array_name]
            end = begin + math.prod(shape)
            numbers = np.arange(begin, end)
            numbered[alias] = numbers.reshape(shape)
            first_of[array_name] = begin
            begin = end
        places = source.build(numbered.get)
        assert places is not None
        for array_name, start in first_of.items():
            self._fill(array_name, own, places, start)

    def _fill(self, name: str, own: np.ndarray, places: np.ndarray, start: int) -> None:
        """Fill one array: `places` has the numbers of its own numbers from `start` on."""
        shape = self.shapes[name]
        if name not in self.made:
            self.made[name] = np.zeros(shape, own.dtype)
            self.known[name] = np.zeros(shape, bool)
        at = np.abs(places) - start
        inside = (at >= 0) & (at < math.prod(shape))
        signs = np.sign(places)
        values = own * signs
        at = at[inside]
        self.made[name].flat[at] = values[inside]
        self.known[name].flat[at] = True
