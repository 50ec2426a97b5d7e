"""Which layer is which where names do not say: by what layers are, their shapes, and who feeds whom."""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence

import numpy as np

from resnet_fn.parity.matching.names import Piece, leaf_name, role
from resnet_fn.parity.matching.source import squeezed
from resnet_fn.parity.traces.layer import Layer, fingerprint

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
        return {to: leaves[of] for of, to in names.items() if of in leaves}, {
            to: shapes[of] for of, to in names.items() if of in leaves
        }

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

    Args:
        ours, theirs: one recorded forward pass of each net.
        ignore: parameters of each net that do not count.

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
    layers = {}
    for name, (source, kind, number) in a.unary.items():
        other = by_place.get((found.get(source, -1), kind, number))
        if other is not None:
            layers[name] = other
    return pairs, left, rest, layers


def _pair_group(ours: list[tuple[int, Node]], theirs: list[tuple[int, Node]]) -> dict[int, int]:
    """Among nodes that look alike: by name where all names agree, else by role, else by execution order."""
    for key in (lambda node: (node.layer, node.role), lambda node: node.role):
        a, b = Counter(key(node) for _, node in ours), Counter(key(node) for _, node in theirs)
        if a == b and (max(a.values(), default=0) == 1 or ("" not in a and len(a) > 1)):
            found = {}
            waiting: dict[object, list[int]] = defaultdict(list)
            for index, node in theirs:
                waiting[key(node)].append(index)
            for index, node in ours:
                found[index] = waiting[key(node)].pop(0)
            return found
    return {one: other for (one, _), (other, _) in zip(ours, theirs, strict=False)}
