"""Pair the layers of two nets by kind, shapes and neighbours."""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence

import numpy as np

from resnet_fn.parity.pair.name_map import Part, Shape, leaf_name, role, squeezed
from resnet_fn.parity.trace.layer import Layer, fingerprint

_ROUNDS = 8  # the largest distance, in layers, of neighbours that are compared

Leaves = dict[str, tuple[str, Shape]]  # torch's leaf name → the parameter's full name and its shape

# torch's names if the widths of q, k and v differ
_SEPARATE = ("q_proj_weight", "k_proj_weight", "v_proj_weight")


@dataclasses.dataclass
class Node:
    """A layer that owns parameters, or one projection of a fused layer."""

    layer: str  # its path
    kind: str  # the layer's kind; "" for a user's class and for a layer with recorded layers inside
    leaves: dict[str, Part]  # torch's leaf name → the parameter, or one of its equal parts
    shapes: dict[str, Shape]  # the shape of each leaf, without axes of size 1
    output: Shape | None  # the output's shape; None if the shape is not compared
    role: str = ""  # "q", "k", "v" or "out" of an attention; "" if unknown
    whole: bool = True  # whether the node is the whole layer


class Graph:
    """A graph of the layers that own parameters. An edge leads to the next such layer that gets a
    layer's output.

    Edges are found by comparing an input's bytes with earlier layers' outputs and with the ReLU of
    these outputs.

    Args:
        expand: 0 makes one node for each layer. 1 also makes a node of an attention's output
            projection. 2 also makes nodes of q, k and v, in an attention or in a dense layer with
            three times as many outputs as inputs.
        ignore: the names of parameters that are left out.
    """

    def __init__(self, layers: Sequence[Layer], expand: int, ignore: Collection[str]) -> None:
        self.nodes: list[Node] = []
        self.feeds: list[int | None] = []
        # layer → index of the node that feeds it, kind, number
        self.unary: dict[str, tuple[int, str, int]] = {}
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
            # The first layer with these bytes counts, because an identity's output is its input.
            origin.setdefault(fingerprint(layer.output), source)
            origin.setdefault(fingerprint(np.maximum(layer.output, 0)), source)

    def labels(self, rounds: int = 0) -> list[int]:
        """Return a number for each node, equal if the nodes and their neighbours within `rounds`
        edges are alike.
        """
        now = [
            hash((node.kind, tuple(sorted(node.shapes.values())), node.output))
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
    """Return the index of the node that feeds `node`, or None.

    An attention's key and query may have different ones.
    """
    if node.role == "out" and not node.whole:
        return None
    place = 0 if node.whole else {"k": 1, "v": 2}.get(node.role, 0)
    return inputs[place] if place < len(inputs) else inputs[0]


def _nodes(layer: Layer, expand: int, ignore: Collection[str]) -> list[Node]:
    owned = [(leaf_name(leaf), f"{layer.name}.{leaf}", shape) for leaf, shape in layer.parameters]
    leaves = {leaf: (name, shape) for leaf, name, shape in owned if name not in ignore}
    if not leaves:
        return []
    if expand and layer.kind == "attention":
        return _attention(layer, leaves, expand)
    # The name of a user's class is not compared, because GRN here may be GlobalResponseNorm there.
    kind = layer.kind if layer.leaf and not layer.is_own else ""
    if expand and kind == "norm":  # on one side the norm may be a user's class
        kind = ""
    output = layer.output.shape if layer.output is not None and not expand else None
    weight = leaves.get("weight", ("", (0, 0, 2)))[1]
    if (
        expand
        and kind == "conv"
        and len(squeezed(weight)) <= 2
        and layer.settings.get("groups") == 1
    ):
        kind = "dense"  # a convolution with a kernel of one pixel
    if expand == 2 and kind == "dense" and weight and weight[0] == 3 * weight[-1] > 0:
        return [_part(layer, leaves, one, index, 3) for index, one in enumerate("qkv")]
    return [
        Node(
            layer.name, kind, *_shares(leaves), output, role(layer.name) if kind == "dense" else ""
        )
    ]


def _shares(
    leaves: Leaves, index: int = 0, count: int = 1
) -> tuple[dict[str, Part], dict[str, Shape]]:
    """Return part `index` of `count` equal parts of each parameter, and each part's shape without
    axes of size 1.
    """
    parts = {leaf: Part(name, share=(index, count)) for leaf, (name, _) in leaves.items()}
    sizes = {
        leaf: shape if count == 1 else (shape[0] // count, *shape[1:])
        for leaf, (_, shape) in leaves.items()
    }
    return parts, {leaf: squeezed(shape) for leaf, shape in sizes.items()}


def _part(layer: Layer, leaves: Leaves, one: str, index: int = 0, count: int = 1) -> Node:
    return Node(layer.name, "dense", *_shares(leaves, index, count), None, one, whole=False)


def _attention(layer: Layer, leaves: Leaves, expand: int) -> list[Node]:
    """Return the projections of an attention as dense nodes, with the output projection last."""

    def picked(names: dict[str, str]) -> Leaves:
        return {to: leaves[of] for of, to in names.items() if of in leaves}

    fused = picked({"in_proj_weight": "weight", "in_proj_bias": "bias"})
    parts = "qkv" if expand == 2 or "weight" not in fused else ("",)
    nodes = [_part(layer, fused, one, index, len(parts)) for index, one in enumerate(parts)]
    for node, leaf in zip(nodes, _SEPARATE, strict=False):
        if leaf in leaves:  # the weights are separate, their bias is fused
            node.leaves["weight"], node.shapes["weight"] = (
                Part(leaves[leaf][0]),
                squeezed(leaves[leaf][1]),
            )
    rest = {
        leaf: leaf.removeprefix("out_proj.")
        for leaf in leaves
        if leaf.startswith(("out_proj.", "bias_"))
    }
    return [*nodes, _part(layer, picked(rest), "out")]


Pairs = list[tuple[Node, Node]]

Nodes = list[tuple[int, Node]]  # of one graph: (index in it, node)


def pair_nodes(
    ours: Sequence[Layer], theirs: Sequence[Layer], ignore: tuple[Collection[str], Collection[str]]
) -> tuple[Pairs, list[Node], list[Node], dict[str, str]]:
    """Pair the nodes of both nets' graphs, with the value of `expand` for which both graphs are
    most alike.

    Returns (pairs, our unpaired nodes, the reference's unpaired nodes, layers). The dict `layers`
    maps our layers without parameters to the reference's.
    """
    graphs = []
    for expand in (0, 1, 2):
        a, b = Graph(ours, expand, ignore[0]), Graph(theirs, expand, ignore[1])
        graphs.append((a, b))
        for rounds in range(_ROUNDS, -1, -1):  # the finest first
            labels = a.labels(rounds), b.labels(rounds)
            if Counter(labels[0]) == Counter(labels[1]):
                return _pair(a, b, *labels)
    a, b = max(graphs, key=lambda pair: _alike(*pair))
    return _pair(a, b, a.labels(), b.labels())


def _alike(a: Graph, b: Graph) -> float:
    """Return the fraction of nodes that two graphs have in common, from 0 to 1."""
    first, second = Counter(a.labels()), Counter(b.labels())
    return (first & second).total() / max(1, (first | second).total())


def _pair(
    a: Graph, b: Graph, labels_a: list[int], labels_b: list[int]
) -> tuple[Pairs, list[Node], list[Node], dict[str, str]]:
    groups: dict[int, tuple[Nodes, Nodes]] = defaultdict(lambda: ([], []))
    for side, (graph, labels) in enumerate(((a, labels_a), (b, labels_b))):
        for index, (label, node) in enumerate(zip(labels, graph.nodes, strict=True)):
            groups[label][side].append((index, node))
    paired: dict[int, int] = {}
    for group in groups.values():
        paired |= _pair_group(*group)
    pairs = [(a.nodes[one], b.nodes[paired[one]]) for one in sorted(paired)]
    left = [node for index, node in enumerate(a.nodes) if index not in paired]
    rest = [node for index, node in enumerate(b.nodes) if index not in set(paired.values())]
    by_place = {place: name for name, place in b.unary.items()}
    places = {
        name: (paired.get(source, -1), kind, number)
        for name, (source, kind, number) in a.unary.items()
    }
    return (
        pairs,
        left,
        rest,
        {name: by_place[place] for name, place in places.items() if place in by_place},
    )


def _pair_group(ours: Nodes, theirs: Nodes) -> dict[int, int]:
    """Pair nodes with equal labels by name, role or order.

    Returns a dict from our node's index to the reference's.
    """
    for key in (lambda node: (node.layer, node.role), lambda node: node.role):
        a, b = Counter(key(node) for _, node in ours), Counter(key(node) for _, node in theirs)
        if a == b and (max(a.values(), default=0) == 1 or ("" not in a and len(a) > 1)):
            ordered = [
                [index for index, _ in sorted(side, key=lambda pair: key(pair[1]))]
                for side in (ours, theirs)
            ]
            return dict(zip(*ordered, strict=True))
    return {one: other for (one, _), (other, _) in zip(ours, theirs, strict=False)}
