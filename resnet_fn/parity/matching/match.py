"""Which parameter and layer of a net is which of the reference's: by name, else by execution order and shapes."""

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from resnet_fn.parity.matching.corrections import Corrections, resolve
from resnet_fn.parity.matching.name_map import NameMap
from resnet_fn.parity.matching.names import Piece, holders, pieces
from resnet_fn.parity.matching.source import Part, Source, joined, plain, squeezed
from resnet_fn.parity.matching.structure import Node, pair_nodes
from resnet_fn.parity.traces.layer import Layer

Shapes = Mapping[str, tuple[int, ...]]
Ties = Iterable[tuple[str, ...]]


def match(
    ours: Shapes,
    theirs: Shapes,
    our_layers: Sequence[Layer],
    their_layers: Sequence[Layer],
    corrections: Corrections | None = None,
    *,
    tied: tuple[Ties, Ties] = ((), ()),
    constants: tuple[Collection[str], Collection[str]] = ((), ()),
) -> NameMap:
    """Pair every parameter and layer of a net with the reference's.

    If the names agree up to MindSpore's leaf names (`bn1.gamma` for `bn1.weight`) and an attention's fused or separate
    projections, names decide and shapes are only checked. Otherwise layers are paired by what they are, the shapes of
    their parameters and outputs, the layers that feed them and that they feed, and, where all that is alike, by
    execution order. Nothing is ever taken for transposed: only `corrections` can say so.

    Args:
        ours, theirs: shapes of all parameters and statistics, by name.
        our_layers, their_layers: one recorded forward pass of each net, on the same inputs.
        corrections: what is known better (`read_map`).
        tied: names that are one array, of each net.
        constants: arrays of each net that need no counterpart: neither trained nor statistics.

    Raises:
        ValueError: corrections that name what is not there, or do not fit.
    """
    fixed, named_layers = resolve(corrections or {}, ours, theirs)
    used = {name for source in fixed.values() for name in source.names}
    task = _Task(
        {name: shape for name, shape in ours.items() if name not in fixed},
        {name: shape for name, shape in theirs.items() if name not in used},
        _groups(tied[0]),
        _groups(tied[1]),
        (set(constants[0]), set(constants[1])),
        used,
    )
    names = {layer.name for layer in their_layers}
    same = {layer.name: layer.name for layer in our_layers if layer.name in names}
    how, layers = "names", same
    found, problems = task.by_name()
    if problems:
        structured = task.by_structure(our_layers, their_layers, same)
        if found is None or len(structured[2]) <= len(problems):
            found, layers, problems = structured
            how = "execution order and shapes"
    sources = {name: fixed.get(name) or (found or {}).get(name) for name in ours}
    parameters = {name: source for name, source in sources.items() if source is not None}
    parameters, wrong = _fit(parameters, ours, theirs, set(fixed))
    groups = tuple(tuple(group) for group in tied[1])
    return NameMap(how, parameters, {**layers, **named_layers}, (*problems, *wrong), groups)


def _groups(ties: Ties) -> dict[str, tuple[str, ...]]:
    return {name: tuple(group) for group in ties for name in group}


def _fit(
    parameters: dict[str, Source], ours: Shapes, theirs: Shapes, fixed: set[str]
) -> tuple[dict[str, Source], list[str]]:
    """Check every shape; one that differs only in ones is reshaped."""
    wrong = []
    for name, source in parameters.items():
        shapes = {one: np.empty(theirs[one], np.bool_) for one in source.names}
        try:
            made = source.build(shapes.get)
        except ValueError as error:
            wrong.append(f"{'--map: ' if name in fixed else ''}{name}: {error}")
            continue
        assert made is not None
        if made.shape == tuple(ours[name]):
            continue
        if squeezed(made.shape) == squeezed(ours[name]):
            parameters[name] = dataclasses.replace(source, shape=tuple(ours[name]))
            continue
        words = f"{name} is {tuple(ours[name])} here, {made.shape} in the reference"
        if made.shape == tuple(ours[name])[::-1]:
            words += f'; if it is kept transposed, --map {{"{name}": {{"from": "{source.names[0]}", '
            words += '"transpose": [1, 0]}} says so'
        wrong.append(words)
    return parameters, wrong


@dataclasses.dataclass(frozen=True)
class _Task:
    """What is to be paired: shapes by name, names that are one array, what needs no counterpart, what is taken."""

    ours: Shapes
    theirs: Shapes
    our_ties: dict[str, tuple[str, ...]]
    their_ties: dict[str, tuple[str, ...]]
    constants: tuple[set[str], set[str]]
    used: set[str]

    def by_name(self) -> tuple[dict[str, Source] | None, list[str]]:
        """Pair by keys that both frameworks share; what is missing on either side."""
        a, b = pieces(self.ours), pieces(self.theirs)
        found, missing = {}, []
        for name, keys in holders(a).items():
            parts = [b[key] for key in self._same_array(name, keys, b) if key in b]
            if len(parts) == len(keys):
                found[name] = joined(parts)
            elif name not in self.constants[0]:
                missing.append(f"{name} {list(self.ours[name])} has no counterpart in the reference")
        return found or None, [*missing, *self._unused(found)]

    def _same_array(self, name: str, keys: list[str], known: Mapping[str, Piece]) -> list[str]:
        """The keys of an array, or of another name of it that the reference knows."""
        if len(keys) > 1 or keys[0] in known:
            return keys
        return next(([key] for key in pieces(self.our_ties.get(name, ())) if key in known), keys)

    def _unused(self, found: Mapping[str, Source]) -> list[str]:
        taken: dict[str, set[tuple[int, int]]] = defaultdict(set)
        for piece in [part for source in found.values() for part in source.parts]:
            taken[piece.name].add(piece.share or (0, 1))
        problems = []
        for name, shape in self.theirs.items():
            others = self.their_ties.get(name, ())
            if name in self.constants[1] or any(one in taken or one in self.used for one in others):
                continue
            parts = taken.get(name, set())
            missing = next(({(i, n) for i in range(n)} - parts for _, n in parts), {(0, 1)})
            if missing:
                which = sorted(index + 1 for index, _ in missing)
                part = f", part {which[0]} of 3," if parts else ""
                problems.append(f"the reference's {name} {list(shape)}{part} has no counterpart here")
        return problems

    def by_structure(
        self, our_layers: Sequence[Layer], their_layers: Sequence[Layer], same: dict[str, str]
    ) -> tuple[dict[str, Source], dict[str, str], list[str]]:
        """Pair layers, then what belongs to no layer that runs."""
        best: tuple[dict[str, Source], dict[str, str], list[str]] | None = None
        for spared in (False, True):
            sides = ((our_layers, self.ours, self.our_ties), (their_layers, self.theirs, self.their_ties))
            ignore = [
                {name for layer in layers for name in _owned(layer) if not {name, *ties.get(name, ())} & set(known)}
                for layers, known, ties in sides
            ]
            if spared:
                ignore = [ignored | constant for ignored, constant in zip(ignore, self.constants, strict=True)]
            attempt = self._pair(our_layers, their_layers, (ignore[0], ignore[1]))
            if best is None or len(attempt[2]) < len(best[2]):
                best = attempt
            if not best[2]:
                break
        assert best is not None
        return best

    def _pair(
        self, our_layers: Sequence[Layer], their_layers: Sequence[Layer], ignore: tuple[set[str], set[str]]
    ) -> tuple[dict[str, Source], dict[str, str], list[str]]:
        pairs, left, rest, layers = pair_nodes(our_layers, their_layers, ignore)
        problems = [f"{node.layer} {_words(node)} has no counterpart in the reference" for node in left]
        problems += [f"the reference's {node.layer} {_words(node)} has no counterpart here" for node in rest]
        held: dict[str, dict[int, Piece]] = defaultdict(dict)
        sizes: dict[str, int] = {}
        for node, other in pairs:
            for leaf, piece in _leaf_pairs(node, other):
                name, index, count = node.leaves[leaf]
                held[name][index], sizes[name] = piece, count
            if all(one.whole or one.role == "out" for one in (node, other)):
                layers[node.layer] = other.layer
        found = {
            name: joined([parts[index] for index in sorted(parts)])
            for name, parts in held.items()
            if len(parts) == sizes[name]
        }
        self._outside(found)
        if not problems:
            lost = [name for name in self.ours if name not in found and name not in self.constants[0]]
            problems = [
                f"{name} belongs to no layer that runs; give it the reference's name, or --map" for name in lost
            ]
            problems += self._unused(found)
        return found, layers, problems

    def _outside(self, found: dict[str, Source]) -> None:
        """Parameters of no recorded layer: by name, else where only one on each side has the shape."""
        taken = {part.name for source in found.values() for part in source.parts}
        ours = {name: shape for name, shape in self.ours.items() if name not in found}
        theirs = {name: shape for name, shape in self.theirs.items() if name not in taken}
        known = pieces(theirs)
        for name, keys in holders(pieces(ours)).items():
            if len(keys) == 1 and keys[0] in known and known[keys[0]][1:] == (0, 1):
                found[name] = Source((Part(known[keys[0]][0]),))
                del ours[name], theirs[known[keys[0]][0]]
        for name, shape in ours.items():
            alike = [one for one, other in theirs.items() if squeezed(other) == squeezed(shape)]
            rivals = [one for one, other in ours.items() if squeezed(other) == squeezed(shape)]
            if len(alike) == len(rivals) == 1:
                found[name] = plain(alike[0])


def _owned(layer: Layer) -> list[str]:
    return [f"{layer.name}.{leaf}" for leaf, _ in layer.parameters]


def _words(node: Node) -> str:
    return ", ".join(f"{leaf} {list(shape)}" for leaf, shape in node.shapes.items())


def _leaf_pairs(ours: Node, theirs: Node) -> list[tuple[str, Piece]]:
    """Leaves that are called alike; what is left, where only one on each side has the shape."""
    pairs = [(leaf, theirs.leaves[leaf]) for leaf in ours.leaves if leaf in theirs.leaves]
    named = {leaf for leaf, _ in pairs}
    left = {leaf: shape for leaf, shape in ours.shapes.items() if leaf not in named}
    rest = {leaf: shape for leaf, shape in theirs.shapes.items() if leaf not in named}
    for leaf, shape in left.items():
        alike = [one for one, other in rest.items() if other == shape]
        if len(alike) == 1 and list(left.values()).count(shape) == 1:
            pairs.append((leaf, theirs.leaves[alike[0]]))
    return pairs
