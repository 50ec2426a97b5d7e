"""Pair the parameters and layers of a net with the reference's, by names or by execution order and
shapes."""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from resnet_fn.parity.pair.graph import Node, pair_nodes
from resnet_fn.parity.pair.map_file import Corrections, resolve
from resnet_fn.parity.pair.name_map import (
    MadeOf,
    NameMap,
    Part,
    Shape,
    common_name,
    joined,
    squeezed,
    whole_array,
)
from resnet_fn.parity.trace.data import Trace
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.tree import Arrays


class Side(NamedTuple):
    """The arrays and layers of one net, which are to be paired with another net's."""

    shapes: Mapping[str, Shape]  # of all parameters and statistics, by name
    layers: Sequence[Layer] = ()  # one recorded forward pass, on the same inputs for both nets
    tied: Sequence[tuple[str, ...]] = ()  # names that are one array
    # arrays that need no counterpart: neither trained nor statistics
    constants: Collection[str] = ()

    def aliases(self, name: str) -> tuple[str, ...]:
        """Return all names of the array `name`, or () if the array has only one name."""
        return next((group for group in self.tied if name in group), ())

    def without(self, names: Collection[str]) -> "Side":
        """Return a copy without the arrays `names`."""
        return self._replace(
            shapes={name: shape for name, shape in self.shapes.items() if name not in names}
        )


def match(ours: Side, theirs: Side, corrections: Corrections | None = None) -> NameMap:
    """Pair the parameters and layers of a net with the reference's.

    Arrays are paired by name if both nets use the same names, apart from names like MindSpore's
    `gamma` for `weight`. Otherwise layers are paired by kind, shapes and neighbours. Layers that
    are alike are paired by name or by order. Only `corrections`, which come from --map, can pair a
    weight with a transposed weight.
    """
    fixed, named_layers = resolve(corrections or {}, ours.shapes, theirs.shapes)
    used = {name for source in fixed.values() for name in source.names}
    pairing = _Pairing(ours.without(fixed), theirs.without(used), used)
    names = {layer.name for layer in theirs.layers}
    how = "names"
    layers = {layer.name: layer.name for layer in ours.layers if layer.name in names}
    sources, problems = pairing.by_name()
    if problems:
        structured = pairing.by_structure()
        if not sources or len(structured[2]) <= len(problems):
            sources, layers, problems = structured
            how = "execution order and shapes"
    sources |= {name: source for name, source in fixed.items() if source.parts}
    parameters = {name: sources[name] for name in ours.shapes if name in sources}
    problems += _fit(parameters, ours.shapes, theirs.shapes, fixed)
    apart: set[str] = set()
    for name, source in fixed.items():
        owners = {one.rpartition(".")[0] for one in source.names}
        if source.added and len(owners) > 1:  # the nets add these terms in different layers
            apart |= {name.rpartition(".")[0], *owners}
    pairs = {a: b for a, b in {**layers, **named_layers}.items() if not {a, b} & apart}
    return NameMap(how, parameters, pairs, tuple(problems), tuple(theirs.tied))


def shapes_of(arrays: Arrays) -> dict[str, Shape]:
    """Return the shape of each array."""
    return {name: tuple(array.shape) for name, array in arrays.items()}


def fuller_mode(recording: Trace) -> str:
    """Return the mode in which more layers run, "eval" or "train"."""
    return max("eval", "train", key=lambda mode: len(recording.layers[mode]))


def side_of(recording: Trace, mode: str) -> Side:
    """Return the arrays of a recorded net, and the layers that run in `mode`."""
    return Side(
        shapes_of(recording.run.start),
        recording.layers[mode],
        recording.tied,
        recording.constants,
    )


def _fit(
    parameters: dict[str, MadeOf],
    ours: Mapping[str, Shape],
    theirs: Mapping[str, Shape],
    fixed: Collection[str],
) -> list[str]:
    """Return a line for each array that does not fit.

    Add a reshape to `parameters` if only axes of size 1 differ.
    """
    wrong = []
    for name, source in parameters.items():
        arrays = {one: np.empty(theirs[one], np.int8) for one in source.names}
        wanted = tuple(ours[name])
        try:
            made = np.asarray(source.build(arrays.get)).shape
        except ValueError as error:
            flag = "--map: " if name in fixed else ""
            wrong.append(f"{flag}{name}: {error}")
            continue
        if made != wanted and squeezed(made) == squeezed(wanted):
            parameters[name] = dataclasses.replace(source, shape=wanted)
        elif made != wanted:
            correction = f'{{"{name}": {{"from": "{source.names[0]}", "transpose": [1, 0]}}}}'
            hint = ""
            if made == wanted[::-1]:
                hint = f"; if it is stored transposed, add {correction} to --map"
            wrong.append(f"{name} is {wanted} here, {made} in the reference{hint}")
    return wrong


@dataclasses.dataclass(frozen=True)
class _Pairing:
    """The arrays of both nets that are still unpaired.

    `used` names the reference's arrays that --map has paired.
    """

    ours: Side
    theirs: Side
    used: set[str]

    def by_name(self) -> tuple[dict[str, MadeOf], list[str]]:
        """Pair arrays by name.

        Returns the pairs, and one line for each array without a counterpart.
        """
        by_name = {common_name(name): name for name in self.theirs.shapes}
        by_name |= {name: name for name in self.theirs.shapes}
        sources = {}
        missing = []
        for name, shape in self.ours.shapes.items():
            candidates: list[str] = []
            for own in (name, *self.ours.aliases(name)):
                candidates += (own, common_name(own))
            known = [one for one in candidates if one in by_name]
            if known:
                other = by_name[known[0]]
                sources[name] = whole_array(other)
            elif name not in self.ours.constants:
                missing.append(f"{name} {list(shape)} has no counterpart in the reference")
        return sources, [*missing, *self._unused(sources)]

    def _unused(self, sources: Mapping[str, MadeOf]) -> list[str]:
        taken: dict[str, set[tuple[int, int]]] = defaultdict(set)
        for source in sources.values():
            for part in source.parts:
                taken[part.name].add(part.share)
        problems = []
        for name, shape in self.theirs.shapes.items():
            others = self.theirs.aliases(name)
            is_used = any(one in taken or one in self.used for one in others)
            if is_used or name in self.theirs.constants:
                continue
            parts = taken.get(name, set())
            missing = next(({(i, n) for i in range(n)} - parts for _, n in parts), {(0, 1)})
            if missing:
                which = sorted(index + 1 for index, _ in missing)
                third = f", part {which[0]} of 3," if parts else ""
                problems.append(
                    f"the reference's {name} {list(shape)}{third} has no counterpart here"
                )
        return problems

    def by_structure(self) -> tuple[dict[str, MadeOf], dict[str, str], list[str]]:
        """Pair layers by kind and shapes.

        Returns paired parameters, paired layers, and one line for each problem.
        """
        ours = _without_array(self.ours)
        theirs = _without_array(self.theirs)
        first = self._pair((ours, theirs))
        if not first[2]:
            return first
        second = self._pair((ours.union(self.ours.constants), theirs.union(self.theirs.constants)))
        return min(first, second, key=lambda attempt: len(attempt[2]))

    def _pair(
        self, ignore: tuple[set[str], set[str]]
    ) -> tuple[dict[str, MadeOf], dict[str, str], list[str]]:
        pairs, left, rest, layers = pair_nodes(self.ours.layers, self.theirs.layers, ignore)
        problems = [f"{_words(node)} has no counterpart in the reference" for node in left]
        problems += [f"the reference's {_words(node)} has no counterpart here" for node in rest]
        held: dict[str, dict[tuple[int, int], Part]] = defaultdict(dict)
        for node, other in pairs:
            for leaf, part in _leaf_pairs(node, other):
                own = node.leaves[leaf]
                held[own.name][own.share] = part
            if all(one.whole or one.role == "out" for one in (node, other)):
                layers[node.layer] = other.layer
        sources: dict[str, MadeOf] = {}
        for name, parts in held.items():
            _, count = next(iter(parts))
            if len(parts) == count:
                pieces = [parts[share] for share in sorted(parts)]
                sources[name] = joined(pieces)
        self._outside(sources)
        if not problems:
            unpaired = self.ours.without(sources).shapes
            lost = [name for name in unpaired if name not in self.ours.constants]
            words = (
                "belongs to no layer that runs; rename it as in the reference, or add it to --map"
            )
            problems = [*(f"{name} {words}" for name in lost), *self._unused(sources)]
        return sources, layers, problems

    def _outside(self, sources: dict[str, MadeOf]) -> None:
        """Pair parameters outside of recorded layers by name or by a unique shape, and add the
        pairs to `sources`.
        """
        taken = {part.name for source in sources.values() for part in source.parts}
        ours = dict(self.ours.without(sources).shapes)
        theirs = dict(self.theirs.without(taken).shapes)
        by_name = {common_name(name): name for name in theirs}
        for name in [*ours]:
            if other := by_name.pop(common_name(name), ""):
                sources[name] = whole_array(other)
                del ours[name], theirs[other]
        for name, other in _unique_pairs(ours, theirs):
            sources[name] = whole_array(other)


def _unique_pairs(ours: Mapping[str, Shape], theirs: Mapping[str, Shape]) -> list[tuple[str, str]]:
    """Return pairs of names whose shape, without axes of size 1, occurs once on each side."""
    mine = _by_shape(ours)
    others = _by_shape(theirs)
    return [(name, others[shape]) for shape, name in mine.items() if shape in others]


def _by_shape(shapes: Mapping[str, Shape]) -> dict[Shape, str]:
    """Return the names by shape, without axes of size 1, of shapes that occur once."""
    flat = {name: squeezed(shape) for name, shape in shapes.items()}
    counts = Counter(flat.values())
    return {shape: name for name, shape in flat.items() if counts[shape] == 1}


def _without_array(side: Side) -> set[str]:
    """Return the layers' parameters that are not among the arrays to pair, under any name."""
    missing = set()
    for layer in side.layers:
        for name in layer.owned():
            if {name, *side.aliases(name)}.isdisjoint(side.shapes):
                missing.add(name)
    return missing


def _words(node: Node) -> str:
    shapes = ", ".join(f"{leaf} {list(shape)}" for leaf, shape in node.shapes.items())
    return f"{node.layer} {shapes}"


def _leaf_pairs(ours: Node, theirs: Node) -> list[tuple[str, Part]]:
    """Pair parameters of two nodes by name or unique shape.

    Returns pairs (our leaf name, the reference's `Part`).
    """
    left = {leaf: shape for leaf, shape in ours.shapes.items() if leaf not in theirs.leaves}
    rest = {leaf: shape for leaf, shape in theirs.shapes.items() if leaf not in ours.leaves}
    pairs = [(leaf, leaf) for leaf in ours.leaves if leaf in theirs.leaves]
    pairs += _unique_pairs(left, rest)
    return [(leaf, theirs.leaves[other]) for leaf, other in pairs]
