"""Inputs of other kinds than the batches have: pictures that are not square, shorter lengths."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from resnet_fn.parity.trace.probes import LENGTHS, WIDE
from resnet_fn.parity.trace.tree import Tree, map_tree, named_leaves

_CHANNELS_FIRST = (-2, -1)  # the axes of height and width
_CHANNELS_LAST = (1, 2)


class Variation(NamedTuple):
    """Inputs on which the whole net runs, in evaluation and in training mode."""

    inputs: Tree
    # what is compared of each output; None: all of it
    of_outputs: Callable[[np.ndarray], np.ndarray] | None = None


def variations(inputs: Tree) -> dict[str, Variation]:
    """Return the variations of a batch, by name."""
    leaves = named_leaves(inputs, "inputs")
    named: dict[str, Variation] = {}
    axes = _square_axes(leaves)
    if axes:
        _, width = axes
        first = _first_array(leaves)
        widened = partial(_widened, first.shape[width], axes)
        wide = map_tree(widened, inputs)
        named[WIDE] = Variation(wide)
    for name, leaf in leaves.items():
        if is_full_length(name, leaves):
            named[f"{LENGTHS} ({name})"] = _shorter(inputs, leaf)
    return named


def _first_array(leaves: Mapping[str, np.ndarray]) -> np.ndarray:
    arrays = (leaf for leaf in leaves.values() if leaf.ndim)
    return next(arrays, np.zeros(0))


def _square_axes(leaves: Mapping[str, np.ndarray]) -> tuple[int, int] | None:
    """Return the axes of height and width if the first input has square pictures, else None."""
    first = _first_array(leaves)
    if first.ndim < 4 or first.dtype.kind != "f":
        return None
    for height, width in (_CHANNELS_FIRST, _CHANNELS_LAST):
        size = first.shape[width]
        if size > 1 and first.shape[height] == size:
            return height, width
    return None


def _widened(size: int, axes: tuple[int, int], leaf: np.ndarray) -> np.ndarray:
    """Return pictures, or their masks, of twice the width: a net that takes pictures of several
    sizes takes this one.
    """
    height, width = axes
    if leaf.ndim < 3:
        return leaf
    if leaf.shape[height] != size or leaf.shape[width] != size:
        return leaf
    # not the same picture again: a net that mixes up both halves must differ
    turned = np.flip(leaf, axes)
    if leaf.dtype.kind == "f":
        turned = np.float32(0.5) * turned
    return np.concatenate([leaf, turned], width)


def is_full_length(name: str, leaves: Mapping[str, np.ndarray]) -> bool:
    """Return whether an input [n] of integers gives the length of another input n times."""
    lengths = leaves[name]
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or len(lengths) < 2:
        return False
    length = int(lengths[0])
    if length < 2 or (lengths != length).any():
        return False
    for leaf in leaves.values():
        if leaf.ndim < 2:
            continue
        samples, *sizes = leaf.shape
        if samples == len(lengths) and length in sizes:
            return True
    return False


def _shorter(inputs: Tree, full: np.ndarray) -> Variation:
    """Return a variation whose lengths descend from the full one to half of it.

    Places of outputs [n, length, …] beyond a sample's length are not compared: only padding is
    there.
    """
    count = len(full)
    length = int(full[0])
    shorter_by = np.arange(count) * (length // 2) // (count - 1)
    lengths = length - shorter_by

    def change(leaf: np.ndarray) -> np.ndarray:
        return lengths.astype(leaf.dtype) if leaf is full else leaf

    def without_padding(output: np.ndarray) -> np.ndarray:
        if output.shape[:2] != (count, length):
            return output
        kept = np.zeros_like(output)
        for sample, end in enumerate(lengths):
            kept[sample, :end] = output[sample, :end]
        return kept

    return Variation(map_tree(change, inputs), without_padding)
