"""Trees (nested tuples, lists and dicts) of arrays: a batch, and a net's outputs."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np


def leaves(tree: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield (keys, leaf) for every leaf of nested tuples, lists and dicts, for example (("k",), x)
    for {"k": x}.
    """
    if isinstance(tree, Mapping):
        pairs: Iterable[tuple[Any, Any]] = tree.items()
    elif isinstance(tree, tuple | list):
        pairs = enumerate(tree)
    else:
        yield (), tree
        return
    for key, branch in pairs:
        for path, leaf in leaves(branch):
            yield (key, *path), leaf


Tree = Any  # an array, or a tuple, list or dict of trees

# inputs, labels: NumPy arrays [n, …] of any dtype, or tuples or dicts of them
Batch = tuple[Tree, Tree]

Arrays = dict[str, np.ndarray]

# The ends of the names of outputs that are texts, or numbers of an object. They may be settings,
# so they need no counterpart.
TEXT, NUMBER = " (text)", " (number)"


def named_leaves(tree: Tree, single: str) -> dict[str, Any]:
    """Return leaves by name, like "inputs 0" if `single` is "inputs".

    If the tree is a leaf, it is named `single`.
    """
    named = {}
    for path, leaf in leaves(tree):
        if leaf is not None:
            name = " ".join([single, *map(str, path)])
            named[name] = leaf
    return named


def map_tree(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """Return the tree with `function` applied to every leaf.

    Lists become tuples, and None stays None: an argument or a label that is not given.
    """
    if tree is None:
        return None
    if isinstance(tree, Mapping):
        return {key: map_tree(function, branch) for key, branch in tree.items()}
    if isinstance(tree, tuple | list):
        return tuple(map_tree(function, branch) for branch in tree)
    return function(tree)


def map_values(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return what a net passes on with `function` applied to every value. Other than with
    `map_tree`, lists and named tuples stay what they are, so that a net can take the result; dicts
    of other classes, objects, and subclasses of named tuples (PackedSequence) count as values.
    """
    kind = type(tree)
    if kind is dict:
        return {key: map_values(function, branch) for key, branch in tree.items()}
    is_plain = kind in (tuple, list)
    is_named = kind.__bases__ == (tuple,) and hasattr(kind, "_fields")
    if not is_plain and not is_named:
        return function(tree)
    branches = []
    for branch in tree:
        branches.append(map_values(function, branch))
    return kind(branches) if is_plain else kind(*branches)


def shared(arrays: Arrays, like: Arrays) -> Arrays:
    """Return arrays of which those that equal the array of the same name in `like` are that array.

    A net's arrays are large, and several states of a net have many in common.
    """
    return {
        name: like[name] if name in like and _equal(array, like[name]) else array
        for name, array in arrays.items()
    }


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and np.array_equal(a, b)


def split(tree: Tree, parts: int) -> list[Tree]:
    """Split a tree into micro-batches: every leaf [n, …] into equal pieces along the first axis."""
    if parts == 1:
        return [tree]

    def piece(part: int) -> Tree:
        def of_leaf(leaf: np.ndarray) -> np.ndarray:
            return np.split(leaf, parts)[part]

        return map_tree(of_leaf, tree)

    return [piece(part) for part in range(parts)]


def _alike(name: str, shape: tuple[int, ...], left: Sequence[str], port: Arrays) -> str | None:
    """Return the first of the outputs `left` with this shape, for a text or an object's number of
    its kind only: these stand for no array.
    """
    for other in left:
        if _kind_of(other) == _kind_of(name) and port[other].shape == shape:
            return other
    return None


def _kind_of(name: str) -> str:
    if name.endswith(TEXT):
        return TEXT
    if name.endswith(NUMBER):
        return NUMBER
    return ""


def paired_outputs(port: Arrays, reference: Arrays) -> dict[str, str] | None:
    """Map the reference's outputs to the net's, by name or else by shape.

    None means that a counterpart is missing. A text or an object's number needs none.
    """
    if list(reference) == ["logits"] and len(port) > 1:  # a tuple against one tensor
        return None
    left = [name for name in port if name not in reference]
    paired = {}
    for name, b in reference.items():
        shape = b.shape
        port_name: str | None = name
        if name not in port:
            port_name = _alike(name, shape, left, port)
            if port_name is None and name.endswith((TEXT, NUMBER)):
                continue
        if port_name is None or port[port_name].shape != shape:
            return None
        if port_name in left:  # in order: none before it is paired
            del left[: left.index(port_name) + 1]
        paired[name] = port_name
    return paired
