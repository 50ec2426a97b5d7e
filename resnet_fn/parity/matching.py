"""Which parameter and layer of a net is which of the reference's: by name, else by execution order and shapes."""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from resnet_fn.layers.layer import Layer, fingerprint
from resnet_fn.parity.name_map import (
    Corrections,
    NameMap,
    Piece,
    Source,
    holders,
    joined,
    leaf_name,
    pieces,
    plain,
    resolve,
    role,
    squeezed,
)
from resnet_fn.parity.trace import Arrays, Recording

_ROUNDS = 8  # how many layers away neighbours are looked at, at most
_SEPARATE = {"q_proj_weight": "q", "k_proj_weight": "k", "v_proj_weight": "v"}  # torch's, where widths differ


@dataclasses.dataclass
class Node:
    """A layer that owns parameters, or one of the projections that a fused layer holds.

    Attributes:
        layer: its path.
        kind: what it is; "" for a layer of layers that owns parameters itself, and for a class of the user's.
        leaves: torch's leaf name → (the parameter's full name, which part of it, of how many).
        shapes: of each leaf, without ones.
        output: its output's shape, None if it is not known.
        role: "q", "k", "v", "out" of an attention, as far as known.
        whole: whether the layer's output is this node's.
    """

    layer: str
    kind: str
    leaves: dict[str, Piece]
    shapes: dict[str, tuple[int, ...]]
    output: tuple[int, ...] | None
    role: str = ""
    whole: bool = True


class Graph:
    """The layers that own parameters, and who feeds whom, seen through layers without parameters.

    A layer's input is recognised as another's output by its bytes, and by the bytes of the ReLU of that output, so
    that a net that calls a function where the other has a layer gives the same graph.

    Args:
        layers: one recorded forward pass.
        expand: 0 as recorded; 1 attention as a fused and an output projection; 2 every projection for itself, and any
            dense layer of three times its inputs likewise.
        ignore: parameters that do not count.
    """

    def __init__(self, layers: Sequence[Layer], expand: int, ignore: Collection[str]) -> None:
        self.nodes: list[Node] = []
        self.feeds: list[int | None] = []
        self.unary: dict[str, tuple[int, str, int]] = {}  # name: fed by which node, kind, how many of this kind so far
        origin: dict[str, int | None] = {}
        seen: Counter[tuple[int, str]] = Counter()
        for layer in layers:
            if not layer.leaf and not layer.parameters:
                continue
            source = origin.get(fingerprint(layer.input)) if layer.input is not None else None
            nodes = _nodes(layer, expand, ignore) if layer.call == 0 else []
            if nodes:
                inputs = [source, *(origin.get(digest) for digest in layer.further)]
                for node in nodes:
                    self.nodes.append(node)
                    self.feeds.append(_feed(node, inputs))
                source = len(self.nodes) - 1
            elif layer.leaf and source is not None and layer.call == 0:
                self.unary[layer.name] = (source, layer.kind, seen[source, layer.kind])
                seen[source, layer.kind] += 1
            if layer.output is None:
                continue
            # First come, first known: an identity's output is its input.
            origin.setdefault(fingerprint(layer.output), source)
            origin.setdefault(fingerprint(np.maximum(layer.output, 0)), source)

    def labels(self, rounds: int, with_output: bool) -> list[int]:
        """One number for each node, equal where everything up to `rounds` layers away is alike."""
        now = [
            hash((node.kind, tuple(sorted(node.shapes.values())), node.output if with_output else None))
            for node in self.nodes
        ]
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
    """What feeds a node: key and value of an attention may come from elsewhere than the query."""
    if node.role == "out" and not node.whole:
        return None
    place = {"k": 1, "v": 2}.get(node.role, 0) if not node.whole else 0
    return inputs[place] if place < len(inputs) else inputs[0]


def _nodes(layer: Layer, expand: int, ignore: Collection[str]) -> list[Node]:
    leaves = {leaf_name(leaf): f"{layer.name}.{leaf}" for leaf, _ in layer.parameters}
    shapes = {leaf_name(leaf): shape for leaf, shape in layer.parameters}
    for leaf in [leaf for leaf, name in leaves.items() if name in ignore]:
        del leaves[leaf], shapes[leaf]
    if not leaves:
        return []
    if expand and layer.kind == "attention":
        return _attention(layer, leaves, shapes, expand)
    # What a class of the user's is called says nothing: GRN here may be GlobalResponseNorm there.
    kind = layer.kind if layer.leaf and not layer.is_own else ""
    if expand and kind == "norm":  # which may be written by hand on one side
        kind = ""
    output = layer.output.shape if layer.output is not None and not expand else None
    if kind == "conv" and len(squeezed(shapes.get("weight", (0, 0, 2)))) <= 2 and layer.settings.get("groups") == 1:
        kind = "dense" if expand else kind  # a convolution with a kernel of one pixel
    rows = (shapes.get("weight") or (0,))[0]
    thirds = expand == 2 and kind == "dense" and rows and rows == 3 * shapes["weight"][-1]
    if thirds:
        return [_part(layer, leaves, shapes, one, index, 3) for index, one in enumerate("qkv")]
    named = {leaf: (name, 0, 1) for leaf, name in leaves.items()}
    small = {leaf: squeezed(shape) for leaf, shape in shapes.items()}
    return [Node(layer.name, kind, named, small, output, role(layer.name) if expand == 2 else "")]


def _part(
    layer: Layer, leaves: dict[str, str], shapes: dict[str, tuple[int, ...]], one: str, index: int, count: int
) -> Node:
    """One of `count` equal parts of a fused projection."""
    pieces = {leaf: (name, index, count) for leaf, name in leaves.items()}
    small = {leaf: squeezed((shape[0] // count, *shape[1:])) for leaf, shape in shapes.items()}
    return Node(layer.name, "dense", pieces, small, None, one, whole=False)


def _attention(layer: Layer, leaves: dict[str, str], shapes: dict[str, tuple[int, ...]], expand: int) -> list[Node]:
    """Fused or separate projections of an attention as dense layers."""

    def picked(names: dict[str, str]) -> tuple[dict[str, str], dict[str, tuple[int, ...]]]:
        known = {of: to for of, to in names.items() if of in leaves}
        return {to: leaves[of] for of, to in known.items()}, {to: shapes[of] for of, to in known.items()}

    fused = picked({"in_proj_weight": "weight", "in_proj_bias": "bias"})
    nodes = []
    if "weight" in fused[0] and expand == 1:
        nodes = [_part(layer, *fused, "", 0, 1)]
    elif "weight" in fused[0]:
        nodes = [_part(layer, *fused, one, index, 3) for index, one in enumerate("qkv")]
    else:
        for index, (leaf, one) in enumerate(_SEPARATE.items()):
            node = _part(layer, *picked({leaf: "weight"}), one, 0, 1)
            if "in_proj_bias" in leaves:
                node.leaves["bias"] = (leaves["in_proj_bias"], index, 3)
                node.shapes["bias"] = (shapes["in_proj_bias"][0] // 3,)
            nodes.append(node)
    rest = {leaf: leaf.removeprefix("out_proj.") for leaf in leaves if leaf.startswith(("out_proj.", "bias_"))}
    out = _part(layer, *picked(rest), "out", 0, 1)
    return [*nodes, out]


Pairs = list[tuple[Node, Node]]


def pair_nodes(
    ours: Sequence[Layer], theirs: Sequence[Layer], ignore: tuple[Collection[str], Collection[str]]
) -> tuple[Pairs, list[Node], list[Node], dict[str, str]]:
    """Pair the nodes of both nets' graphs, at the first way of looking at them in which both are made of the same.

    Returns:
        The pairs, what is left of ours, what is left of theirs, and layers without parameters: ours → theirs.
    """
    graphs = []
    for expand in (0, 1, 2):
        a, b = Graph(ours, expand, ignore[0]), Graph(theirs, expand, ignore[1])
        graphs.append((a, b))
        labels = _finest_common(a, b)
        if labels is not None:
            break
    else:
        a, b = max(graphs, key=lambda pair: _alike(*pair))
        labels = a.labels(0, False), b.labels(0, False)
    return _pair(a, b, *labels)


def _alike(a: Graph, b: Graph) -> float:
    """The share of nodes that have one of the same kind and shapes on the other side."""
    first, second = Counter(a.labels(0, False)), Counter(b.labels(0, False))
    return (first & second).total() / max(1, (first | second).total())


def _finest_common(a: Graph, b: Graph) -> tuple[list[int], list[int]] | None:
    for with_output in (True, False):
        for rounds in range(_ROUNDS, -1, -1):
            labels = a.labels(rounds, with_output), b.labels(rounds, with_output)
            if Counter(labels[0]) == Counter(labels[1]):
                return labels
    return None


def _pair(
    a: Graph, b: Graph, labels_a: list[int], labels_b: list[int]
) -> tuple[Pairs, list[Node], list[Node], dict[str, str]]:
    waiting: dict[int, list[int]] = defaultdict(list)
    for index, label in enumerate(labels_b):
        waiting[label].append(index)
    alike: dict[int, list[int]] = defaultdict(list)
    for index, label in enumerate(labels_a):
        alike[label].append(index)
    found: dict[int, int] = {}
    for label, group in alike.items():
        found |= _pair_group([(i, a.nodes[i]) for i in group], [(i, b.nodes[i]) for i in waiting[label]])
    pairs = [(a.nodes[one], b.nodes[found[one]]) for one in sorted(found)]
    left = [node for index, node in enumerate(a.nodes) if index not in found]
    rest = [node for index, node in enumerate(b.nodes) if index not in set(found.values())]
    by_place = {place: name for name, place in b.unary.items()}
    places = {name: (found.get(source, -1), kind, number) for name, (source, kind, number) in a.unary.items()}
    return pairs, left, rest, {name: by_place[place] for name, place in places.items() if place in by_place}


def _pair_group(ours: list[tuple[int, Node]], theirs: list[tuple[int, Node]]) -> dict[int, int]:
    """Among nodes that look alike: by name where all names agree, else by role, else by execution order."""
    for key in (lambda node: (node.layer, node.role), lambda node: node.role):
        a, b = Counter(key(node) for _, node in ours), Counter(key(node) for _, node in theirs)
        if a == b and (max(a.values(), default=0) == 1 or ("" not in a and len(a) > 1)):
            ordered = [[index for index, _ in sorted(side, key=lambda pair: key(pair[1]))] for side in (ours, theirs)]
            return dict(zip(*ordered, strict=True))
    return {one: other for (one, _), (other, _) in zip(ours, theirs, strict=False)}


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
    how, layers = "names", {layer.name: layer.name for layer in our_layers if layer.name in names}
    found, problems = task.by_name()
    if problems:
        structured = task.by_structure(our_layers, their_layers)
        if found is None or len(structured[2]) <= len(problems):
            found, layers, problems = structured
            how = "execution order and shapes"
    sources = {name: fixed.get(name) or (found or {}).get(name) for name in ours}
    parameters = {name: source for name, source in sources.items() if source is not None}
    parameters, wrong = _fit(parameters, ours, theirs, set(fixed))
    return NameMap(how, parameters, {**layers, **named_layers}, (*problems, *wrong), tuple(map(tuple, tied[1])))


def shapes_of(arrays: Arrays) -> Shapes:
    """The shape of each array."""
    return {name: tuple(array.shape) for name, array in arrays.items()}


def fuller_mode(recording: Recording) -> str:
    """The mode in which more layers run: a second head may run in training only."""
    return max("eval", "train", key=lambda mode: len(recording.layers[mode]))


def match_recordings(ours: Recording, theirs: Recording, corrections: Corrections | None = None) -> NameMap:
    """The same for two recordings."""
    return match(
        shapes_of(ours.trace.start),
        shapes_of(theirs.trace.start),
        ours.layers[fuller_mode(theirs)],
        theirs.layers[fuller_mode(theirs)],
        corrections,
        tied=(ours.tied, theirs.tied),
        constants=(ours.constants, theirs.constants),
    )


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
        """The keys of an array, or of another name of it that the reference has."""
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
        self, our_layers: Sequence[Layer], their_layers: Sequence[Layer]
    ) -> tuple[dict[str, Source], dict[str, str], list[str]]:
        """Pair layers, then what belongs to no layer that runs."""
        sides = ((our_layers, self.ours, self.our_ties), (their_layers, self.theirs, self.their_ties))
        ours, theirs = (
            {name for layer in layers for name in _owned(layer) if not {name, *ties.get(name, ())} & set(known)}
            for layers, known, ties in sides
        )
        found = self._pair(our_layers, their_layers, (ours, theirs))
        if not found[2]:
            return found
        spared = self._pair(our_layers, their_layers, (ours | self.constants[0], theirs | self.constants[1]))
        return min(found, spared, key=lambda attempt: len(attempt[2]))

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
            words = "belongs to no layer that runs; give it the reference's name, or --map"
            problems = [*(f"{name} {words}" for name in lost), *self._unused(found)]
        return found, layers, problems

    def _outside(self, found: dict[str, Source]) -> None:
        """Parameters of no recorded layer: by name, else where only one on each side has the shape."""
        taken = {part.name for source in found.values() for part in source.parts}
        ours = {name: shape for name, shape in self.ours.items() if name not in found}
        theirs = {name: shape for name, shape in self.theirs.items() if name not in taken}
        known = pieces(theirs)
        for name, keys in holders(pieces(ours)).items():
            if len(keys) == 1 and keys[0] in known and known[keys[0]][1:] == (0, 1):
                found[name] = plain(known[keys[0]][0])
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
