"""Pair the parameters and layers of a net with the reference's, by names or by execution order and
shapes."""

import dataclasses
import functools
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from resnet_fn.config.wording import words_of
from resnet_fn.parity.pair.graph import Node, pair_nodes
from resnet_fn.parity.pair.map_file import Corrections, made_of, resolve
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
from resnet_fn.parity.pair.suggest import advice, entries
from resnet_fn.parity.trace.data import Trace
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.tree import Arrays


class Attempt(NamedTuple):
    """One way to pair two nets."""

    sources: dict[str, MadeOf]  # of the port's paired parameters
    layers: dict[str, str]  # the port's layers → the reference's
    problems: list[str]  # a line for each array or layer without a counterpart


class Outline(NamedTuple):
    """The arrays and layers of one net, which are to be paired with another net's."""

    shapes: Mapping[str, Shape]  # of all parameters and statistics, by name
    layers: Sequence[Layer] = ()  # one recorded forward pass, on the same inputs for both nets
    tied: Sequence[tuple[str, ...]] = ()  # names that are one array
    # arrays that need no counterpart: neither trained nor statistics
    constants: Collection[str] = ()
    # constants that are paired only by name, and only with a parameter that the port trains:
    # PyTorch's buffers that are neither saved nor changed by training
    unsaved: Collection[str] = ()
    counts: Collection[str] = ()  # constants of the reference that only corrections pair
    # tensors, NumPy arrays and numbers in attributes of the port's cells, which take no weights
    attributes: Mapping[str, Shape] = MappingProxyType({})

    def aliases(self, name: str) -> tuple[str, ...]:
        """Return all names of the array `name`, or () if the array has only one name."""
        groups = (group for group in self.tied if name in group)
        return next(groups, ())

    def without(self, names: Collection[str]) -> "Outline":
        """Return a copy without the arrays `names`."""
        return self._replace(
            shapes={name: shape for name, shape in self.shapes.items() if name not in names}
        )


def match(
    port: Outline,
    reference: Outline,
    corrections: Corrections | None = None,
    with_advice: bool = True,
) -> NameMap:
    """Pair the parameters and layers of a net with the reference's.

    Arrays are paired by name if both nets use the same names, apart from names like MindSpore's
    `gamma` for `weight`. Otherwise layers are paired by kind, shapes and neighbours. Layers that
    are alike are paired by name or by order. Only `corrections`, which come from --map, can pair a
    weight with a transposed weight. If arrays remain, and `with_advice` is True, the result
    suggests corrections.
    """
    named = {name for source in (corrections or {}).values() for name in source.names}
    reference = reference.without({*reference.counts} - named)
    fixed, named_layers = resolve(corrections or {}, port.shapes, reference.shapes)
    used = {name for source in fixed.values() for name in source.names}
    reference = reference.without(_not_trained(port, reference) - used)
    pairing = _Pairing(port.without(fixed), reference.without(used), used)
    names = {layer.name for layer in reference.layers}
    how = "names"
    both = [layer.name for layer in port.layers if layer.name in names]
    layers = {name: name for name in both}
    sources, problems = pairing.by_name
    if problems:
        structured = pairing.by_structure
        if not sources or len(structured.problems) <= len(problems):
            sources, layers, problems = structured
            how = "execution order and shapes"
    sources = {**sources, **{name: source for name, source in fixed.items() if source.parts}}
    parameters = {name: sources[name] for name in port.shapes if name in sources}
    problems = [*problems, *_fit(parameters, port.shapes, reference.shapes, fixed)]
    apart: set[str] = set()
    for name, source in fixed.items():
        owners = {source_name.rpartition(".")[0] for source_name in source.names}
        if source.added and len(owners) > 1:  # the nets add these terms in different layers
            owner = name.rpartition(".")[0]
            apart |= {owner, *owners}
    pairs = {}
    for port_layer, reference_layer in (layers | named_layers).items():
        if port_layer not in apart and reference_layer not in apart:
            pairs[port_layer] = reference_layer
    advice = []
    if problems and with_advice:
        try:
            advice = pairing.advice(corrections or {}, port, reference)
        except Exception as error:  # the problems are known without advice
            reason = words_of(error)
            advice = [f"no entries for --map are suggested ({reason})"]
    return NameMap(how, parameters, pairs, tuple(problems), tuple(reference.tied), tuple(advice))


def shapes_of(arrays: Arrays) -> dict[str, Shape]:
    """Return the shape of each array."""
    return {name: tuple(array.shape) for name, array in arrays.items()}


def fuller_mode(recording: Trace) -> str:
    """Return the mode in which more layers run, "eval" or "train"."""
    layers = recording.layers
    return max("eval", "train", key=lambda mode: len(layers[mode]))


def outline_of(recording: Trace, mode: str) -> Outline:
    """Return the arrays of a recorded net, and the layers that run in `mode`."""
    return Outline(
        shapes_of(recording.run.start),
        recording.layers[mode],
        recording.tied,
        recording.constants,
        [
            name
            for name, saved in recording.buffers.items()
            if not saved and name not in recording.run.moved
        ],
        recording.counts,
        shapes_of(recording.attributes),
    )


def _not_trained(port: Outline, reference: Outline) -> set[str]:
    """Return the reference's unsaved buffers that have no trained parameter of their name and shape
    in the port.

    A port may compute such an array anew, by another name or in another shape.
    """
    trained = {
        common_name(name): squeezed(shape)
        for name, shape in port.shapes.items()
        if name not in port.constants
    }
    return {
        name
        for name in reference.unsaved
        if name in reference.shapes and trained.get(name) != squeezed(reference.shapes[name])
    }


def _fit(
    parameters: dict[str, MadeOf],
    port: Mapping[str, Shape],
    reference: Mapping[str, Shape],
    fixed: Collection[str],
) -> list[str]:
    """Return a line for each array that does not fit.

    Add a reshape to `parameters` if only axes of size 1 differ.
    """
    wrong = []
    for name, source in parameters.items():
        arrays = {}
        for source_name in source.names:
            arrays[source_name] = np.empty(reference[source_name], np.int8)
        wanted = tuple(port[name])
        try:
            made = np.asarray(source.build(arrays.get)).shape
        except ValueError as error:
            flag = "--map: " if name in fixed else ""
            wrong.append(f"{flag}{name}: {error}")
            continue
        if made == wanted:
            continue
        if squeezed(made) == squeezed(wanted):
            parameters[name] = dataclasses.replace(source, shape=wanted)
        else:
            correction = f'{{"{name}": {{"from": "{source.names[0]}", "transpose": [1, 0]}}}}'
            hint = ""
            if made == wanted[::-1]:
                hint = f"; if it is stored transposed, add {correction} to --map"
            wrong.append(f"{name} is {wanted} in the port, {made} in the reference{hint}")
    return wrong


Share = tuple[int, int]  # (index, count): one of `count` equal parts


@dataclasses.dataclass(frozen=True)
class _Pairing:
    """The arrays of both nets that are still unpaired.

    `used` names the reference's arrays that --map has paired.
    """

    port: Outline
    reference: Outline
    used: set[str]

    @functools.cached_property
    def by_name(self) -> tuple[dict[str, MadeOf], list[str]]:
        """Arrays paired by name, and one line for each array without a counterpart."""
        names = self.reference.shapes
        by_name = {common_name(name): name for name in names}
        by_name |= {name: name for name in names}
        sources = {}
        for name in self.port.shapes:
            candidates: list[str] = []
            for own in (name, *self.port.aliases(name)):
                candidates += (own, common_name(own))
            known = [candidate for candidate in candidates if candidate in by_name]
            if known:
                reference_name = by_name[known[0]]
                sources[name] = whole_array(reference_name)
        lost = self._lost(sources).items()
        missing = [
            f"{name} {list(shape)} has no counterpart in the reference" for name, shape in lost
        ]
        return sources, [*missing, *self._unused(sources)]

    def _lost(self, sources: Mapping[str, MadeOf]) -> dict[str, Shape]:
        """Return the port's arrays that need a counterpart and have none in `sources`."""
        left = self.port.without(sources).shapes
        return {name: shape for name, shape in left.items() if name not in self.port.constants}

    def _free(self, used: Collection[str]) -> dict[str, Shape]:
        """Return the reference's arrays that need a counterpart and have no other name in `used`."""
        taken = self.used.union(used)
        return {
            name: shape
            for name, shape in self.reference.shapes.items()
            if taken.isdisjoint(self.reference.aliases(name))
            and name not in self.reference.constants
        }

    def _unused(self, sources: Mapping[str, MadeOf]) -> list[str]:
        taken: dict[str, set[Share]] = defaultdict(set)
        for source in sources.values():
            for part in source.parts:
                taken[part.name].add(part.share)
        problems = []
        for name, shape in self._free(taken).items():
            parts = taken.get(name, set())
            which = ""
            if parts:
                _, count = next(iter(parts))
                every_part = {(index, count) for index in range(count)}
                missing = sorted(every_part - parts)
                if not missing:
                    continue
                index, _ = missing[0]
                which = f", part {index + 1} of {count},"
            array = f"{name} {list(shape)}{which}"
            problems.append(f"the reference's {array} has no counterpart in the port")
        return problems

    def advice(self, corrections: Corrections, port: Outline, reference: Outline) -> list[str]:
        """Return lines with suggested entries for --map, for arrays without a counterpart.

        `port` and `reference` are the whole nets, for which the entries are tried.
        """
        sources, _ = self.by_name
        if 2 * len(sources) < len(self.port.shapes):
            sources = self.by_structure.sources
        used = {name for source in sources.values() for name in source.names}
        rest = {name: shape for name, shape in self._free(used).items() if name not in used}
        made = entries(self._lost(sources), rest)
        if not made and not rest:
            return []
        suggested = {name: made_of(entry) for name, entry in made.items()}
        tried = match(port, reference, {**corrections, **suggested}, with_advice=False)
        of_port = {common_name(name): squeezed(shape) for name, shape in port.attributes.items()}
        attributes = [
            name for name in rest if of_port.get(common_name(name)) == squeezed(rest[name])
        ]
        paired = self.used | used
        paired |= {alias for name in paired for alias in self.reference.aliases(name)}
        return advice(made, rest, not tried.problems, attributes, paired)

    @functools.cached_property
    def by_structure(self) -> Attempt:
        """Layers paired by kind and shapes."""
        port = _without_array(self.port)
        reference = _without_array(self.reference)
        first = self._pair(port, reference)
        if not first.problems:
            return first
        port = port.union(self.port.constants)
        reference = reference.union(self.reference.constants)
        second = self._pair(port, reference)
        return min(first, second, key=lambda attempt: len(attempt.problems))

    def _pair(self, ignored_of_port: set[str], ignored_of_reference: set[str]) -> Attempt:
        """Pair layers without some of the port's arrays and of the reference's."""
        ignore = ignored_of_port, ignored_of_reference
        nodes = pair_nodes(self.port.layers, self.reference.layers, ignore)
        pairs, left, rest, layers = nodes
        problems = [f"{_words(node)} has no counterpart in the reference" for node in left]
        problems += [
            f"the reference's {_words(node)} has no counterpart in the port" for node in rest
        ]
        held: dict[str, dict[Share, Part]] = defaultdict(dict)
        for node, other in pairs:
            for leaf, part in _leaf_pairs(node, other):
                own = node.leaves[leaf]
                held[own.name][own.share] = part
            if _stands_for_layer(node) and _stands_for_layer(other):
                layers[node.layer] = other.layer
        sources: dict[str, MadeOf] = {}
        for name, parts in held.items():
            _, count = next(iter(parts))
            if len(parts) == count:
                pieces = [parts[share] for share in sorted(parts)]
                sources[name] = joined(pieces)
        self._outside(sources)
        if not problems:
            problem = (
                "belongs to no layer that runs; rename it as in the reference, or add it to --map"
            )
            problems = [f"{name} {problem}" for name in self._lost(sources)]
            problems += self._unused(sources)
        return Attempt(sources, layers, problems)

    def _outside(self, sources: dict[str, MadeOf]) -> None:
        """Pair parameters outside of recorded layers by name or by a unique shape, and add the
        pairs to `sources`.
        """
        taken = {name for source in sources.values() for name in source.names}
        port = dict(self.port.without(sources).shapes)
        reference = dict(self.reference.without(taken).shapes)
        by_name = {common_name(name): name for name in reference}
        for name in [*port]:
            reference_name = by_name.pop(common_name(name), "")
            if reference_name:
                sources[name] = whole_array(reference_name)
                del port[name], reference[reference_name]
        for name, reference_name in _unique_pairs(port, reference):
            sources[name] = whole_array(reference_name)


Shapes = Mapping[str, Shape]


def _unique_pairs(port: Shapes, reference: Shapes) -> list[tuple[str, str]]:
    """Return pairs of names whose shape, without axes of size 1, occurs once on each side."""
    port_names = _by_shape(port)
    reference_names = _by_shape(reference)
    both = [shape for shape in port_names if shape in reference_names]
    return [(port_names[shape], reference_names[shape]) for shape in both]


def _by_shape(shapes: Shapes) -> dict[Shape, str]:
    """Return the names by shape, without axes of size 1, of shapes that occur once."""
    flat = {}
    for name, shape in shapes.items():
        flat[name] = squeezed(shape)
    counts = Counter(flat.values())
    return {shape: name for name, shape in flat.items() if counts[shape] == 1}


def _without_array(side: Outline) -> set[str]:
    """Return the layers' parameters that are not among the arrays to pair, under any name."""
    missing = set()
    for layer in side.layers:
        for name in layer.owned():
            names = {name, *side.aliases(name)}
            if names.isdisjoint(side.shapes):
                missing.add(name)
    return missing


def _stands_for_layer(node: Node) -> bool:
    return node.whole or node.role == "out"


def _words(node: Node) -> str:
    shapes = []
    for leaf, shape in node.shapes.items():
        shapes.append(f"{leaf} {list(shape)}")
    return f"{node.layer} {', '.join(shapes)}"


def _leaf_pairs(port: Node, reference: Node) -> list[tuple[str, Part]]:
    """Pair parameters of two nodes by name or unique shape.

    Returns pairs (the port's leaf name, the reference's `Part`).
    """
    common = [leaf for leaf in port.leaves if leaf in reference.leaves]
    pairs = [(leaf, leaf) for leaf in common]
    left = dict(port.shapes)
    rest = dict(reference.shapes)
    for leaf in common:
        del left[leaf]
        del rest[leaf]
    pairs += _unique_pairs(left, rest)
    return [(leaf, reference.leaves[reference_leaf]) for leaf, reference_leaf in pairs]
