"""Inputs of other kinds than the batches have: pictures that are not square, shorter lengths."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from resnet_fn.parity.trace.probes import LENGTHS, WIDE
from resnet_fn.parity.trace.tree import Tree, map_tree, named_leaves


class Variation(NamedTuple):
    """Inputs on which the whole net runs, in evaluation and in training mode."""

    inputs: Tree
    # what is compared of each output; None: all of it
    of_outputs: Callable[[np.ndarray], np.ndarray] | None = None


def variations(inputs: Tree) -> dict[str, Variation]:
    """Return the variations of a batch, by name."""
    given = named_leaves(inputs, "inputs")
    found = {}
    if square := _square(given):
        found[WIDE] = Variation(map_tree(partial(_widened, *square), inputs))
    for name, leaf in given.items():
        if is_full_length(name, given):
            found[f"{LENGTHS} ({name})"] = _shorter(inputs, leaf)
    return found


def _square(given: Mapping[str, np.ndarray]) -> tuple[int, int] | None:
    """Return (size, axis of the width) if the first input has square pictures, else None."""
    first = next((leaf for leaf in given.values() if leaf.ndim), np.zeros(0))
    if first.ndim < 4 or first.dtype.kind != "f":
        return None
    *_, height, width = first.shape
    if height == width > 1:
        return width, -1
    if first.ndim == 4 and first.shape[1] == first.shape[2] > 1:  # the channels are last
        return first.shape[2], 2
    return None


def _widened(size: int, axis: int, leaf: np.ndarray) -> np.ndarray:
    """Return pictures, or their masks, of twice the width: any net that takes pictures of several
    sizes takes this one.
    """
    axes = (-2, -1) if axis < 0 else (1, 2)
    if leaf.ndim < 3 or (leaf.shape[axes[0]], leaf.shape[axes[1]]) != (size, size):
        return leaf
    # not the same picture again: a net that mixes up both halves must differ
    turned = np.flip(leaf, axes)
    if leaf.dtype.kind == "f":
        turned = np.float32(0.5) * turned
    return np.concatenate([leaf, turned.astype(leaf.dtype)], axis)


def is_full_length(name: str, given: Mapping[str, np.ndarray]) -> bool:
    """Return whether an input [n] of integers gives the length of another input n times."""
    lengths = given[name]
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or len(lengths) < 2:
        return False
    length = int(lengths[0])
    if length < 2 or (lengths != length).any():
        return False
    others = [leaf for other, leaf in given.items() if other != name and leaf.ndim > 1]
    return any(len(leaf) == len(lengths) and length in leaf.shape[1:] for leaf in others)


def _shorter(inputs: Tree, full: np.ndarray) -> Variation:
    """Return a variation whose lengths descend from the full one to half of it.

    Places of outputs [n, length, …] beyond a sample's length are not compared: only padding is
    there.
    """
    count, length = len(full), int(full[0])
    lengths = length - np.arange(count) * (length // 2) // (count - 1)

    def change(leaf: np.ndarray) -> np.ndarray:
        return lengths.astype(leaf.dtype) if leaf is full else leaf

    def without_padding(output: np.ndarray) -> np.ndarray:
        if output.shape[:2] != (count, length):
            return output
        valid = np.arange(length) < lengths[:, None]
        return np.where(valid.reshape(*valid.shape, *[1] * (output.ndim - 2)), output, 0)

    return Variation(map_tree(change, inputs), without_padding)
