"""Pair the parameters and layers of a net with the reference's: by name, else by execution order and shapes."""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from resnet_fn.parity.layers.layer import Layer, fingerprint
from resnet_fn.parity.name_map import (
    Corrections,
    MadeOf,
    NameMap,
    Part,
    Shape,
    common_name,
    joined,
    leaf_name,
    resolve,
    role,
    squeezed,
    whole_array,
)
from resnet_fn.parity.trace import Arrays, Recording

_ROUNDS = 8  # how many layers away neighbours are looked at, at most
Leaves = dict[str, tuple[str, Shape]]  # torch's leaf name → the parameter's full name and its shape


@dataclasses.dataclass
class Node:
    """A layer that owns parameters, or one of the projections that a fused layer holds."""

    layer: str  # its path
    kind: str  # what it is; "" for a user's class, and for a layer of layers that owns parameters itself
    leaves: dict[str, Part]  # torch's leaf name → the parameter, or a share of it
    shapes: dict[str, Shape]  # of each leaf, without ones
    output: Shape | None  # its output's shape; None if it is not known, or does not count
    role: str = ""  # "q", "k", "v", "out" of an attention, as far as known
    whole: bool = True  # whether the layer's output is this node's


class Graph:
    """The layers that own parameters, and who feeds whom, seen through layers without parameters.

    A layer's input is recognised by its bytes as another layer's output or the ReLU of it: a net that calls a function
    where the other has a layer gives the same graph.

    With `apart`, each projection of an attention is a node of its own, also of a dense layer with three times as many
    outputs as inputs; kinds and outputs then count for less. Parameters in `ignore` do not count.
    """

    def __init__(self, layers: Sequence[Layer], apart: bool, ignore: Collection[str]) -> None:
        self.nodes: list[Node] = []
        self.feeds: list[int | None] = []
        self.unary: dict[str, tuple[int, str, int]] = {}  # name: fed by which node, kind, how many of this kind so far
        origin: dict[str, int | None] = {}
        seen: Counter[tuple[int, str]] = Counter()
        for layer in layers:
            if not layer.leaf and not layer.parameters:
                continue
            source = origin.get(fingerprint(layer.input)) if layer.input is not None else None
            inputs = [source, *(origin.get(digest) for digest in layer.further)]
            nodes = _nodes(layer, apart, ignore) if layer.call == 0 else []
            self.nodes += nodes
            self.feeds += [_feed(node, inputs) for node in nodes]
            if nodes:
                source = len(self.nodes) - 1
            elif layer.leaf and source is not None and layer.call == 0:
                self.unary[layer.name] = (source, layer.kind, seen[source, layer.kind])
                seen[source, layer.kind] += 1
            if layer.output is None:
                continue
            # The first layer with these bytes counts: an identity's output is its input.
            origin.setdefault(fingerprint(layer.output), source)
            origin.setdefault(fingerprint(np.maximum(layer.output, 0)), source)

    def labels(self, rounds: int = 0) -> list[int]:
        """One number for each node, equal for two nodes if everything up to `rounds` layers away is alike."""
        now = [hash((node.kind, tuple(sorted(node.shapes.values())), node.output)) for node in self.nodes]
        for _ in range(rounds):
            fed: dict[int, list[int]] = defaultdict(list)
            for index, source in enumerate(self.feeds):
                if source is not None:
                    fed[source].append(now[index])
            now = [
                hash((now[i], None if source is None else now[source], tuple(sorted(fed[i]))))
                for i, source in enumerate(self.feeds)
            ]
        return now


def _feed(node: Node, inputs: list[int | None]) -> int | None:
    """What feeds a node: an attention's key and value may come from another layer than its query."""
    if node.role == "out" and not node.whole:
        return None
    place = 0 if node.whole else {"k": 1, "v": 2}.get(node.role, 0)
    return inputs[place] if place < len(inputs) else inputs[0]


def _nodes(layer: Layer, apart: bool, ignore: Collection[str]) -> list[Node]:
    owned = [(leaf_name(leaf), f"{layer.name}.{leaf}", shape) for leaf, shape in layer.parameters]
    leaves = {leaf: (name, shape) for leaf, name, shape in owned if name not in ignore}
    if not leaves:
        return []
    # The name of a user's class is no evidence: GRN here may be GlobalResponseNorm there.
    kind, output = layer.kind if layer.leaf and not layer.is_own else "", None
    if not apart:
        output = None if layer.output is None else layer.output.shape
    elif kind == "attention":
        return _attention(layer, leaves)
    elif kind == "norm":  # one side may have it written by hand
        kind = ""
    else:
        weight = leaves.get("weight", ("", (0, 0, 2)))[1]
        if kind == "conv" and len(squeezed(weight)) <= 2 and layer.settings.get("groups") == 1:
            kind = "dense"  # a convolution with a kernel of one pixel
        if kind == "dense" and weight and weight[0] == 3 * weight[-1] > 0:
            return _thirds(layer, leaves)
    return [Node(layer.name, kind, *_shares(leaves), output, role(layer.name) if kind == "dense" else "")]


def _shares(leaves: Leaves, index: int = 0, count: int = 1) -> tuple[dict[str, Part], dict[str, Shape]]:
    """One of `count` equal shares of each leaf, and its shape without ones."""
    parts = {leaf: Part(name, share=(index, count)) for leaf, (name, _) in leaves.items()}
    sizes = {leaf: shape if count == 1 else (shape[0] // count, *shape[1:]) for leaf, (_, shape) in leaves.items()}
    return parts, {leaf: squeezed(shape) for leaf, shape in sizes.items()}


def _thirds(layer: Layer, leaves: Leaves) -> list[Node]:
    """A projection to query, key and value as a dense layer each."""
    return [
        Node(layer.name, "dense", *_shares(leaves, index, 3), None, one, whole=False) for index, one in enumerate("qkv")
    ]


def _attention(layer: Layer, leaves: Leaves) -> list[Node]:
    """The projections of an attention as dense layers. torch's are fused, except for weights of different widths."""
    fused = {leaf.removeprefix("in_proj_"): one for leaf, one in leaves.items() if leaf.startswith("in_proj_")}
    nodes = _thirds(layer, fused)
    for node in nodes:
        if separate := leaves.get(f"{node.role}_proj_weight"):
            node.leaves["weight"], node.shapes["weight"] = Part(separate[0]), squeezed(separate[1])
    rest = {
        leaf.removeprefix("out_proj."): one for leaf, one in leaves.items() if leaf.startswith(("out_proj.", "bias_"))
    }
    return [*nodes, Node(layer.name, "dense", *_shares(rest), None, "out", whole=False)]


Pairs = list[tuple[Node, Node]]
Nodes = list[tuple[int, Node]]  # of one graph, with their places in it


def _graphs(
    ours: Sequence[Layer], theirs: Sequence[Layer], ignore: Sequence[Collection[str]]
) -> tuple[Graph, Graph, list[int], list[int]]:
    """Both nets' graphs, with the finest labels that both have alike; else the graphs that share most labels."""
    candidates = []
    for apart in (False, True):
        a, b = Graph(ours, apart, ignore[0]), Graph(theirs, apart, ignore[1])
        for rounds in range(_ROUNDS, -1, -1):
            labels = a.labels(rounds), b.labels(rounds)
            first, second = map(Counter, labels)
            if first == second:
                return a, b, *labels
        candidates.append(((first & second).total() / max(1, (first | second).total()), (a, b, *labels)))
    return max(candidates, key=lambda one: one[0])[1]


def pair_nodes(
    ours: Sequence[Layer], theirs: Sequence[Layer], ignore: Sequence[Collection[str]]
) -> tuple[Pairs, list[Node], list[Node], dict[str, str]]:
    """Pair the nodes of both nets' graphs.

    Returns pairs, our and the reference's nodes without a counterpart, and layers without parameters: ours → theirs.
    """
    a, b, *labels = _graphs(ours, theirs, ignore)
    groups: dict[int, tuple[Nodes, Nodes]] = defaultdict(lambda: ([], []))
    for side, graph in enumerate((a, b)):
        for label, one in zip(labels[side], enumerate(graph.nodes), strict=True):
            groups[label][side].append(one)
    paired: dict[int, int] = {}
    for here, there in groups.values():
        key = _key(here, there)
        ordered = zip(sorted(here, key=key), sorted(there, key=key), strict=False)
        paired |= {one: other for (one, _), (other, _) in ordered}
    pairs = [(a.nodes[one], b.nodes[paired[one]]) for one in sorted(paired)]
    left = [node for index, node in enumerate(a.nodes) if index not in paired]
    rest = [node for index, node in enumerate(b.nodes) if index not in paired.values()]
    by_place = {place: name for name, place in b.unary.items()}
    places = {name: (paired.get(source, -1), kind, number) for name, (source, kind, number) in a.unary.items()}
    return pairs, left, rest, {name: by_place[place] for name, place in places.items() if place in by_place}


def _key(ours: Nodes, theirs: Nodes) -> Callable[[tuple[int, Node]], Any]:
    """By what nodes that look alike are paired: by name if all names agree, else by role, else by execution order."""
    for key in (lambda one: (one[1].layer, one[1].role), lambda one: one[1].role):
        a, b = (Counter(map(key, side)) for side in (ours, theirs))
        if a == b and (max(a.values(), default=0) == 1 or ("" not in a and len(a) > 1)):
            return key
    return lambda one: 0


class Side(NamedTuple):
    """What is paired of one net."""

    shapes: Mapping[str, Shape]  # of all parameters and statistics, by name
    layers: Sequence[Layer] = ()  # one recorded forward pass, on the same inputs as the other's
    tied: Sequence[tuple[str, ...]] = ()  # names that are one array
    constants: Collection[str] = ()  # arrays that need no counterpart: neither trained nor statistics

    def aliases(self, name: str) -> tuple[str, ...]:
        """All names of an array that has several."""
        return next((group for group in self.tied if name in group), ())

    def without(self, names: Collection[str]) -> "Side":
        """The rest, if these arrays are paired."""
        return self._replace(shapes={name: shape for name, shape in self.shapes.items() if name not in names})


def match(ours: Side, theirs: Side, corrections: Corrections | None = None) -> NameMap:
    """Pair every parameter and layer of a net with the reference's.

    If the names agree up to MindSpore's leaf names (`bn1.gamma` for `bn1.weight`), they decide and shapes are only
    checked. Otherwise layers are paired by their kind, the shapes of their parameters and outputs, and their
    neighbours; layers that are alike in all of these, by execution order. No weight is ever assumed to be transposed:
    only `corrections` can declare it.

    `corrections` are pairs that are given (`read_map`); a ValueError names those that do not exist or do not fit.
    """
    fixed, named_layers = resolve(corrections or {}, ours.shapes, theirs.shapes)
    used = {name for source in fixed.values() for name in source.names}
    shared = {one for name in used for one in theirs.aliases(name)}  # further names of them
    mine, others = ours.without(fixed), theirs.without(used)._replace(constants={*theirs.constants, *shared})
    names = {layer.name for layer in theirs.layers}
    how, layers = "names", {layer.name: layer.name for layer in ours.layers if layer.name in names}
    sources, problems = _by_name(mine, others)
    if problems:
        structured = _by_structure(mine, others)
        if not sources or len(structured[2]) <= len(problems):
            sources, layers, problems = structured
            how = "execution order and shapes"
    sources |= {name: source for name, source in fixed.items() if source.parts}
    parameters = {name: sources[name] for name in ours.shapes if name in sources}
    problems += _fit(parameters, ours.shapes, theirs.shapes, fixed)
    apart: set[str] = set()
    for name, source in fixed.items():
        owners = {one.rpartition(".")[0] for one in source.names}
        if source.added and len(owners) > 1:  # what one of these layers adds, another adds there
            apart |= {name.rpartition(".")[0], *owners}
    pairs = {a: b for a, b in {**layers, **named_layers}.items() if not {a, b} & apart}
    return NameMap(how, parameters, pairs, tuple(problems), tuple(theirs.tied))


def shapes_of(arrays: Arrays) -> dict[str, Shape]:
    """The shape of each array."""
    return {name: tuple(array.shape) for name, array in arrays.items()}


def fuller_mode(recording: Recording) -> str:
    """The mode in which more layers run: some nets run a second head in training only."""
    return max("eval", "train", key=lambda mode: len(recording.layers[mode]))


def side_of(recording: Recording, mode: str) -> Side:
    """A recorded net, with the layers that run in one mode."""
    return Side(shapes_of(recording.trace.start), recording.layers[mode], recording.tied, recording.constants)


def _fit(
    parameters: dict[str, MadeOf], ours: Mapping[str, Shape], theirs: Mapping[str, Shape], fixed: Collection[str]
) -> list[str]:
    """Shapes that differ, in words; a shape that differs only in ones is reshaped in place."""
    wrong = []
    for name, source in parameters.items():
        arrays, wanted = {one: np.empty(theirs[one], np.int8) for one in source.names}, tuple(ours[name])
        try:
            made = np.asarray(source.build(arrays.get)).shape
        except ValueError as error:
            wrong.append(f"{'--map: ' if name in fixed else ''}{name}: {error}")
            continue
        if made != wanted and squeezed(made) == squeezed(wanted):
            parameters[name] = dataclasses.replace(source, shape=wanted)
        elif made != wanted:
            correction = f'{{"{name}": {{"from": "{source.names[0]}", "transpose": [1, 0]}}}}'
            hint = f"; if it is stored transposed, add {correction} to --map" if made == wanted[::-1] else ""
            wrong.append(f"{name} is {wanted} here, {made} in the reference{hint}")
    return wrong


def _by_name(ours: Side, theirs: Side) -> tuple[dict[str, MadeOf], list[str]]:
    """Pair by names that both frameworks share; with what is missing on either side."""
    common = {common_name(name): name for name in theirs.shapes} | {name: name for name in theirs.shapes}
    sources = {}
    for name in ours.shapes:
        words = [word for own in (name, *ours.aliases(name)) for word in (own, common_name(own))]
        if known := [common[word] for word in words if word in common]:
            sources[name] = whole_array(known[0])
    return sources, _missing(ours, theirs, sources)


def _missing(ours: Side, theirs: Side, sources: Mapping[str, MadeOf]) -> list[str]:
    """What has no counterpart on the other side, in words."""
    taken: dict[str, set[tuple[int, int]]] = {}
    for part in [part for source in sources.values() for part in source.parts]:
        taken.setdefault(part.name, set()).add(part.share)
    whole = {name for name, shares in taken.items() if len(shares) == next(iter(shares))[1]}
    lost = [name for name in ours.shapes if name not in sources and name not in ours.constants]
    problems = [f"{name} {list(ours.shapes[name])} has no counterpart in the reference" for name in lost]
    for name in [name for name in theirs.shapes if name not in whole and name not in theirs.constants]:
        if not any(one in taken for one in theirs.aliases(name)):
            problems.append(f"the reference's {name} {list(theirs.shapes[name])} has no counterpart here")
    return problems


Structured = tuple[dict[str, MadeOf], dict[str, str], list[str]]  # sources, pairs of layers, problems


def _by_structure(ours: Side, theirs: Side) -> Structured:
    """Pair layers, then parameters of no layer that runs; where this fails, without the constants of layers."""
    fixed, fixed_there = (
        {name for one in side.layers for name in one.owned() if {name, *side.aliases(name)}.isdisjoint(side.shapes)}
        for side in (ours, theirs)
    )
    first = _by_layers(ours, theirs, fixed, fixed_there)
    if not first[2]:
        return first
    second = _by_layers(ours, theirs, fixed.union(ours.constants), fixed_there.union(theirs.constants))
    return min(first, second, key=lambda attempt: len(attempt[2]))


def _by_layers(ours: Side, theirs: Side, *ignore: set[str]) -> Structured:
    pairs, left, rest, layers = pair_nodes(ours.layers, theirs.layers, ignore)
    problems = [f"{node.layer} {_words(node)} has no counterpart in the reference" for node in left]
    problems += [f"the reference's {node.layer} {_words(node)} has no counterpart here" for node in rest]
    held: dict[str, dict[tuple[int, int], Part]] = defaultdict(dict)
    for node, other in pairs:
        for leaf, part in _leaf_pairs(node, other):
            held[node.leaves[leaf].name][node.leaves[leaf].share] = part
        if all(one.whole or one.role == "out" for one in (node, other)):
            layers[node.layer] = other.layer
    whole = {name: parts for name, parts in held.items() if len(parts) == next(iter(parts))[1]}
    sources = {name: joined([parts[share] for share in sorted(parts)]) for name, parts in whole.items()}
    taken = {part.name for source in sources.values() for part in source.parts}
    sources |= _outside(ours.without(sources), theirs.without(taken))
    return sources, layers, problems or _missing(ours, theirs, sources)


def _outside(ours: Side, theirs: Side) -> dict[str, MadeOf]:
    """Parameters of no recorded layer: by name, else if only one on each side has the shape."""
    by_name = {common_name(name): name for name in theirs.shapes}
    pairs = {name: by_name[common_name(name)] for name in ours.shapes if common_name(name) in by_name}
    pairs |= _unique_pairs(ours.without(pairs).shapes, theirs.without(pairs.values()).shapes)
    return {name: whole_array(other) for name, other in pairs.items()}


def _unique_pairs(ours: Mapping[str, Shape], theirs: Mapping[str, Shape]) -> list[tuple[str, str]]:
    """Names of which only one on each side has the shape (without ones)."""
    sides = []
    for shapes in (ours, theirs):
        counts = Counter(map(squeezed, shapes.values()))
        sides.append({squeezed(shape): name for name, shape in shapes.items() if counts[squeezed(shape)] == 1})
    return [(name, sides[1][shape]) for shape, name in sides[0].items() if shape in sides[1]]


def _words(node: Node) -> str:
    return ", ".join(f"{leaf} {list(shape)}" for leaf, shape in node.shapes.items())


def _leaf_pairs(ours: Node, theirs: Node) -> list[tuple[str, Part]]:
    """Leaves of the same name; of the others, those of which only one on each side has the shape."""
    left, rest = (
        {leaf: shape for leaf, shape in a.shapes.items() if leaf not in b.leaves}
        for a, b in ((ours, theirs), (theirs, ours))
    )
    pairs = [*((leaf, leaf) for leaf in ours.leaves if leaf in theirs.leaves), *_unique_pairs(left, rest)]
    return [(leaf, theirs.leaves[other]) for leaf, other in pairs]
