"""Which parameter and layer of a net is which of the reference's: by name, else by execution order and shapes."""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from resnet_fn.parity.layer import Layer, fingerprint

Shapes = Mapping[str, tuple[int, ...]]

# torch's leaf name: what MindSpore's layers may call it.
_LEAVES = {
    "weight": ("weight", "gamma", "embedding_table"),
    "bias": ("bias", "beta"),
    "running_mean": ("moving_mean",),
    "running_var": ("moving_variance",),
}
_ROUNDS = 8  # how many layers away neighbours are looked at, at most


@dataclasses.dataclass(frozen=True)
class NameMap:
    """Which is which.

    Attributes:
        how: "names" or "execution order and shapes".
        parameters: the MindSpore parameter's name → the reference's.
        layers: the MindSpore layer's path → the reference's.
        problems: what has no counterpart, or another shape; empty when everything fits.
    """

    how: str
    parameters: dict[str, str]
    layers: dict[str, str]
    problems: tuple[str, ...]

    def sources(self, name: str) -> tuple[str, ...]:
        """The reference's parameters that one of ours is made of; of what is no parameter, the name itself."""
        return (self.parameters.get(name, name),)

    def rename(self, theirs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The reference's arrays under our names; what it does not have is left out."""
        return {name: theirs[source] for name, source in self.parameters.items() if source in theirs}


def match(ours: Shapes, theirs: Shapes, our_layers: Sequence[Layer], their_layers: Sequence[Layer]) -> NameMap:
    """Pair every parameter and layer of a net with the reference's.

    If the names agree up to MindSpore's leaf names (`bn1.gamma` for `bn1.weight`), names decide and shapes are only
    checked. Otherwise layers are paired by what they are, the shapes of their parameters and outputs, the layers
    that feed them and that they feed, and, where all that is alike, by execution order.

    Args:
        ours, theirs: shapes of all parameters and BatchNorm statistics, by name.
        our_layers, their_layers: one recorded forward pass of each net, on the same images.
    """
    renamed = _by_name(ours, theirs)
    if len(renamed) == len(ours) == len(theirs):
        names = {layer.name for layer in their_layers}
        layers = {layer.name: layer.name for layer in our_layers if layer.name in names}
        wrong = [
            f"{a} is {ours[a]} here, {theirs[b]} in the reference" for a, b in renamed.items() if ours[a] != theirs[b]
        ]
        return NameMap("names", renamed, layers, tuple(wrong))
    return _by_order(ours, theirs, our_layers, their_layers)


def _by_name(ours: Shapes, theirs: Shapes) -> dict[str, str]:
    pairs = {}
    for name in theirs:
        prefix, dot, leaf = name.rpartition(".")
        for candidate in _LEAVES.get(leaf, (leaf,)):
            if prefix + dot + candidate in ours:
                pairs[prefix + dot + candidate] = name
                break
    return {name: pairs[name] for name in ours if name in pairs}


def _by_order(ours: Shapes, theirs: Shapes, our_layers: Sequence[Layer], their_layers: Sequence[Layer]) -> NameMap:
    a, b = _Graph(our_layers), _Graph(their_layers)
    labels_a, labels_b = _finest_common(a, b)
    waiting: dict[int, list[int]] = defaultdict(list)
    for index, label in enumerate(labels_b):
        waiting[label].append(index)
    parameters, layers, problems = {}, {}, []
    for index, label in enumerate(labels_a):
        if not waiting[label]:
            problems.append(f"{a.nodes[index].name} {_shapes(a.nodes[index])} has no counterpart in the reference")
            continue
        ours_layer, theirs_layer = a.nodes[index], b.nodes[waiting[label].pop(0)]
        layers[ours_layer.name] = theirs_layer.name
        for ours_leaf, theirs_leaf in _pair_leaves(ours_layer, theirs_layer):
            parameters[f"{ours_layer.name}.{ours_leaf}"] = f"{theirs_layer.name}.{theirs_leaf}"
    for rest in waiting.values():
        problems += [f"the reference's {b.nodes[i].name} {_shapes(b.nodes[i])} has no counterpart here" for i in rest]
    left = [name for name in ours if name not in parameters]
    if not problems and left:
        problems += [f"{name} belongs to no layer that runs; give its layer the reference's name" for name in left]
    _add_unary(layers, a, b)
    return NameMap("execution order and shapes", parameters, layers, tuple(problems))


def _shapes(layer: Layer) -> str:
    return ", ".join(f"{leaf} {list(shape)}" for leaf, shape in layer.parameters)


def _pair_leaves(ours: Layer, theirs: Layer) -> list[tuple[str, str]]:
    shapes = dict(ours.parameters)
    pairs = []
    for leaf, _ in theirs.parameters:
        found = next((name for name in _LEAVES.get(leaf, (leaf,)) if name in shapes), None)
        if found is not None:
            pairs.append((found, leaf))
    return pairs


class _Graph:
    """The layers that own parameters, and who feeds whom, seen through layers without parameters.

    A layer's input is recognised as another's output by its bytes, and by the bytes of the ReLU of that output, so
    that a net that calls a function where the other has a layer gives the same graph.
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.nodes: list[Layer] = []
        self.feeds: list[int | None] = []
        self.unary: dict[str, tuple[int, str, int]] = {}  # name: fed by which node, kind, how many of this kind so far
        origin: dict[str, int | None] = {}
        seen: Counter[tuple[int, str]] = Counter()
        for layer in layers:
            if layer.output is None or (not layer.leaf and not layer.parameters):
                continue
            source = origin.get(fingerprint(layer.input)) if layer.input is not None else None
            if layer.parameters and layer.call == 0:
                self.nodes.append(layer)
                self.feeds.append(source)
                source = len(self.nodes) - 1
            elif layer.leaf and source is not None and layer.call == 0:
                self.unary[layer.name] = (source, layer.kind, seen[source, layer.kind])
                seen[source, layer.kind] += 1
            # First come, first known: an identity's output is its input.
            origin.setdefault(fingerprint(layer.output), source)
            origin.setdefault(fingerprint(np.maximum(layer.output, 0)), source)

    def labels(self, rounds: int, with_output: bool) -> list[int]:
        """One number for each node, equal where everything up to `rounds` layers away is alike."""
        now = [
            hash((node.kind, tuple(sorted(shape for _, shape in node.parameters)), node.output.shape * with_output))
            for node in self.nodes
            if node.output is not None
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


def _finest_common(a: _Graph, b: _Graph) -> tuple[list[int], list[int]]:
    for with_output in (True, False):
        for rounds in range(_ROUNDS, -1, -1):
            labels = a.labels(rounds, with_output), b.labels(rounds, with_output)
            if Counter(labels[0]) == Counter(labels[1]):
                return labels
    return a.labels(0, False), b.labels(0, False)


def _add_unary(layers: dict[str, str], a: _Graph, b: _Graph) -> None:
    """Pair layers without parameters that follow paired layers: a pool after the same convolution."""
    index = {node.name: number for number, node in enumerate(a.nodes)}
    theirs = {node.name: number for number, node in enumerate(b.nodes)}
    source_of = {index[name]: theirs[other] for name, other in layers.items()}
    by_place = {place: name for name, place in b.unary.items()}
    for name, (source, kind, number) in a.unary.items():
        other = by_place.get((source_of.get(source, -1), kind, number))
        if other is not None:
            layers[name] = other
