"""Give the port's arrays the reference's names and layout."""

import math
from collections.abc import Mapping

import numpy as np

from resnet_fn.parity.pair.name_map import NameMap, Shape, whole_array
from resnet_fn.parity.trace.tree import Arrays


def as_in_reference(
    names: NameMap, port: Mapping[str, np.ndarray], shapes: Mapping[str, Shape]
) -> Arrays:
    """Return the reference's arrays (`shapes`) with the port's numbers, the inverse of
    `NameMap.rename`.

    An array that the port does not have as a whole is left out.
    """
    made: Arrays = {}
    known: dict[str, np.ndarray] = {}
    for name, source in names.parameters.items():
        if name not in port or source.added:
            continue
        own = port[name]
        named = {one: names.one_of(one, shapes) for one in source.names}
        sources = {one: other for one, other in named.items() if other is not None}
        if len(sources) < len(named):
            continue
        [first, *others] = sources.values()
        if not others and source == whole_array(source.names[0]) and own.shape == shapes[first]:
            made[first], known[first] = own, np.ones(own.shape, bool)
            continue
        flat, first_of = _numbered(sources, shapes)
        places = source.build(flat.get)
        assert places is not None
        for one, begin in first_of.items():
            size = math.prod(shapes[one])
            inside = (np.abs(places) >= begin) & (np.abs(places) < begin + size)
            at = np.abs(places)[inside] - begin
            array = made.setdefault(one, np.zeros(shapes[one], own.dtype))
            array.flat[at] = own[inside] * np.sign(places[inside])
            known.setdefault(one, np.zeros(shapes[one], bool)).flat[at] = True
    return {name: array for name, array in made.items() if known[name].all()}


def _numbered(
    sources: Mapping[str, str], shapes: Mapping[str, Shape]
) -> tuple[Arrays, dict[str, int]]:
    """Return arrays whose numbers count from 1, and the first number of each array."""
    flat: Arrays = {}
    first_of: dict[str, int] = {}
    begin = 1
    for alias, name in sources.items():
        if name not in first_of:
            first_of[name] = begin
            begin += math.prod(shapes[name])
        size = math.prod(shapes[name])
        flat[alias] = np.arange(first_of[name], first_of[name] + size).reshape(shapes[name])
    return flat, first_of
