"""Pair the layers of two nets by kind, shapes and neighbours."""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from resnet_fn.parity.pair.name_map import Part, Shape, leaf_name, role, squeezed
from resnet_fn.parity.trace.layer import Layer, fingerprint

_ROUNDS = 8  # the largest distance, in layers, of neighbours that are compared

Leaves = dict[str, tuple[str, Shape]]  # torch's leaf name → the parameter's full name and its shape

# torch's names if the widths of q, k and v differ
_SEPARATE = ("q_proj_weight", "k_proj_weight", "v_proj_weight")


# the place of an attention's input that a projection gets; the first for all others
_FURTHER = {"k": 1, "v": 2}


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
    index: int = -1  # its place in the graph
    source: int | None = None  # the place of the node that feeds it
    # kind → the layers without parameters that get its output, in the order of execution
    followers: dict[str, list[str]] = dataclasses.field(default_factory=dict)


Pairs = list[tuple[Node, Node]]


class Paired(NamedTuple):
    """The nodes of two graphs, paired."""

    pairs: Pairs
    left: list[Node]  # the port's nodes without a counterpart
    rest: list[Node]  # the reference's nodes without a counterpart
    layers: dict[str, str]  # the port's layers without parameters → the reference's


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
        origin: dict[str, int | None] = {}
        for layer in layers:
            if not layer.leaf and not layer.parameters:
                continue
            source = None
            if layer.input is not None:
                digest = fingerprint(layer.input)
                source = origin.get(digest)
            nodes = []
            if layer.call == 0:
                nodes = _nodes(layer, expand, ignore)
            if nodes:
                further = [origin.get(digest) for digest in layer.further]
                inputs = [source, *further]
                for node in nodes:
                    node.index = len(self.nodes)
                    node.source = _feed(node, inputs)
                    self.nodes.append(node)
                source = len(self.nodes) - 1
            elif layer.leaf and source is not None and layer.call == 0:
                followers = self.nodes[source].followers
                of_kind = followers.setdefault(layer.kind, [])
                of_kind.append(layer.name)
            output = layer.output
            if output is None:
                continue
            # The first layer with these bytes counts, because an identity's output is its input.
            positive = np.maximum(output, 0)
            for array in (output, positive):
                origin.setdefault(fingerprint(array), source)

    def labels(self, rounds: int = 0) -> list[int]:
        """Return a number for each node, equal if the nodes and their neighbours within `rounds`
        edges are alike.
        """
        labels = []
        for node in self.nodes:
            shapes = tuple(sorted(node.shapes.values()))
            described = (node.kind, shapes, node.output)
            labels.append(hash(described))
        for _ in range(rounds):
            labels = self._joined_with_neighbours(labels)
        return labels

    def _joined_with_neighbours(self, labels: list[int]) -> list[int]:
        fed: dict[int, list[int]] = defaultdict(list)
        for label, node in zip(labels, self.nodes, strict=True):
            if node.source is not None:
                fed[node.source].append(label)
        joined = []
        for own, node in zip(labels, self.nodes, strict=True):
            source = node.source
            before = None if source is None else labels[source]
            after = tuple(sorted(fed[node.index]))
            joined.append(hash((own, before, after)))
        return joined


def _feed(node: Node, inputs: list[int | None]) -> int | None:
    """Return the index of the node that feeds `node`, or None.

    An attention's key and query may have different ones.
    """
    if node.role == "out" and not node.whole:
        return None
    position = 0
    if not node.whole:
        position = _FURTHER.get(node.role, 0)
    if position >= len(inputs):
        position = 0
    return inputs[position]


def _nodes(layer: Layer, expand: int, ignore: Collection[str]) -> list[Node]:
    leaves: Leaves = {}
    for leaf, shape in layer.parameters:
        name = f"{layer.name}.{leaf}"
        if name not in ignore:
            torch_leaf = leaf_name(leaf)
            leaves[torch_leaf] = name, shape
    if not leaves:
        return []
    if expand and layer.kind == "attention":
        return _attention(layer, leaves, expand)
    _, weight = leaves.get("weight", ("", ()))
    kind = _compared_kind(layer, weight, expand)
    if expand == 2 and kind == "dense" and _is_threefold(weight):
        return _parts(layer, leaves, "qkv")
    output = None
    if layer.output is not None and not expand:
        output = layer.output.shape
    parts, shapes = _shares(leaves)
    node = Node(layer.name, kind, parts, shapes, output)
    if kind == "dense":
        node.role = role(layer.name)
    return [node]


def _is_threefold(weight: Shape) -> bool:
    """Return whether a weight may join those of q, k and v."""
    if not weight:
        return False
    outputs, *inputs = squeezed(weight)  # a convolution of one pixel, too
    return len(inputs) == 1 and outputs == 3 * inputs[0] > 0


def _compared_kind(layer: Layer, weight: Shape, expand: int) -> str:
    """Return the kind by which a layer is paired; `weight` is () if it has no weight."""
    # The name of a user's class is not compared, because GRN here may be GlobalResponseNorm there.
    if not layer.leaf or layer.is_own:
        return ""
    kind = layer.kind
    if expand and kind == "norm":  # on one side the norm may be a user's class
        return ""
    is_flat = weight and len(squeezed(weight)) <= 2
    has_groups = layer.settings.get("groups") != 1
    if expand and kind == "conv" and is_flat and not has_groups:
        return "dense"  # a convolution with a kernel of one pixel
    return kind


def _shares(
    leaves: Leaves, index: int = 0, count: int = 1
) -> tuple[dict[str, Part], dict[str, Shape]]:
    """Return part `index` of `count` equal parts of each parameter, and each part's shape without
    axes of size 1.
    """
    parts: dict[str, Part] = {}
    shapes: dict[str, Shape] = {}
    for leaf, (name, shape) in leaves.items():
        share = (index, count)
        parts[leaf] = Part(name, share=share)
        if count > 1:
            rows, *others = shape
            shape = (rows // count, *others)
        shapes[leaf] = squeezed(shape)
    return parts, shapes


def _parts(layer: Layer, leaves: Leaves, roles: Sequence[str]) -> list[Node]:
    """Return one dense node for each role; together they have the parameters `leaves`."""
    nodes = []
    for index, part_role in enumerate(roles):
        count = len(roles)
        parts, shapes = _shares(leaves, index, count)
        node = Node(layer.name, "dense", parts, shapes, None, part_role, whole=False)
        nodes.append(node)
    return nodes


def _attention(layer: Layer, leaves: Leaves, expand: int) -> list[Node]:
    """Return the projections of an attention as dense nodes, with the output projection last."""
    fused: Leaves = {}
    for leaf in ("weight", "bias"):
        joined = f"in_proj_{leaf}"
        if joined in leaves:
            fused[leaf] = leaves[joined]
    are_apart = expand == 2 or "weight" not in fused
    nodes = _parts(layer, fused, "qkv" if are_apart else [""])
    for node, leaf in zip(nodes, _SEPARATE, strict=False):
        if leaf in leaves:  # the weights are separate, their bias is fused
            name, shape = leaves[leaf]
            node.leaves["weight"] = Part(name)
            node.shapes["weight"] = squeezed(shape)
    rest: Leaves = {}
    for leaf, owned in leaves.items():
        if leaf.startswith(("out_proj.", "bias_")):
            rest[leaf.removeprefix("out_proj.")] = owned
    nodes += _parts(layer, rest, ["out"])
    return nodes


def pair_nodes(
    port: Sequence[Layer],
    reference: Sequence[Layer],
    ignore: tuple[Collection[str], Collection[str]],
) -> Paired:
    """Pair the nodes of both nets' graphs, with the value of `expand` for which both graphs are
    most alike.
    """
    graphs = []
    for expand in (0, 1, 2):
        a = Graph(port, expand, ignore[0])
        b = Graph(reference, expand, ignore[1])
        graphs.append((a, b))
        for rounds in range(_ROUNDS, -1, -1):  # the finest first
            labels = Counter(a.labels(rounds))
            if labels == Counter(b.labels(rounds)):
                return _pair(a, b, rounds)
    a, b = max(graphs, key=_alike)
    return _pair(a, b, 0)


def _alike(graphs: tuple[Graph, Graph]) -> float:
    """Return the fraction of nodes that two graphs have in common, from 0 to 1."""
    a, b = graphs
    first = Counter(a.labels())
    second = Counter(b.labels())
    common = (first & second).total()
    both = (first | second).total()
    return common / max(1, both)


def _pair(a: Graph, b: Graph, rounds: int) -> Paired:
    reference = _grouped(b, rounds)
    pairs: Pairs = []
    for label, group in _grouped(a, rounds).items():
        partners = reference.get(label, [])
        pairs += _pair_group(group, partners)
    pairs.sort(key=lambda pair: pair[0].index)
    own = {node.index for node, _ in pairs}
    others = {node.index for _, node in pairs}
    left = [node for node in a.nodes if node.index not in own]
    rest = [node for node in b.nodes if node.index not in others]
    layers: dict[str, str] = {}
    for own_node, partner in pairs:
        for kind, names in own_node.followers.items():
            reference_of_kind = partner.followers.get(kind, [])
            layers |= zip(names, reference_of_kind, strict=False)
    return Paired(pairs, left, rest, layers)


def _grouped(graph: Graph, rounds: int) -> dict[int, list[Node]]:
    """Return the nodes of each label."""
    groups: dict[int, list[Node]] = defaultdict(list)
    labels = graph.labels(rounds)
    for label, node in zip(labels, graph.nodes, strict=True):
        groups[label].append(node)
    return groups


def _pair_group(port: list[Node], reference: list[Node]) -> Pairs:
    """Pair nodes with equal labels by name, role or order."""
    keys: tuple[Callable[[Node], Any], ...] = (
        lambda node: (node.layer, node.role),
        lambda node: node.role,
    )
    for key in keys:
        a = Counter(map(key, port))
        b = Counter(map(key, reference))
        has_single_nodes = max(a.values(), default=0) == 1
        has_roles = "" not in a and len(a) > 1
        decides = has_single_nodes or has_roles
        if a == b and decides:
            port_nodes = sorted(port, key=key)
            reference_nodes = sorted(reference, key=key)
            return list(zip(port_nodes, reference_nodes, strict=True))
    return list(zip(port, reference, strict=False))
