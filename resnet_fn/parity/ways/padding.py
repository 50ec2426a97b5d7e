"""Find which inputs have padding, and make the same samples without it."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from resnet_fn.parity.record.variations import is_full_length
from resnet_fn.parity.trace.probes import is_mask
from resnet_fn.parity.trace.tree import Tree, map_tree, named_leaves
from resnet_fn.parity.ways.samples import count_of, sample_of

SINGLE = "inputs"  # the name of a single input


@dataclasses.dataclass(frozen=True)
class Lengths:
    """How long each sample of a batch is, and where its length is."""

    longest: int
    of_samples: Sequence[int]
    axes: Mapping[str, Sequence[int]]  # the axes of each input that have this length
    hidden: Mapping[str, float]  # what each mask has in a sample's padding
    numbers: Sequence[str]  # names of inputs that are the lengths themselves


def lengths_of(inputs: Tree, named: Mapping[str, int]) -> Lengths | None:
    """Return the lengths of a batch by its masks, its lengths, or the axes that the user names.

    None means that no input shows them. Padding comes after each sample.
    """
    given = named_leaves(inputs, SINGLE)
    count = count_of(inputs)
    hidden: dict[str, float] = {}
    numbers: list[str] = []
    by_kind: dict[str, tuple[int, Sequence[int]]] = {}  # (the longest, the length of each sample)
    for name, leaf in given.items():
        if mask := _by_mask(name, leaf, count):
            of_samples, hidden[name] = mask
            by_kind["mask"] = leaf.shape[-1], of_samples
        elif _are_lengths(name, given, count):
            numbers.append(name)
            by_kind["lengths"] = int(leaf.max()), leaf.tolist()
    for name, axis in named.items():
        leaf = given[name]
        by_kind["axis"] = leaf.shape[axis], _by_zeros(leaf, axis)
    kinds = [by_kind[kind] for kind in ("mask", "lengths", "axis") if kind in by_kind]
    if not kinds:
        return None
    longest, of_samples = kinds[0]
    axes: dict[str, Sequence[int]] = {}
    for name, leaf in given.items():
        own = (named[name],) if name in named else _axes_of(name, leaf, longest)
        axes[name] = own
    return Lengths(longest, of_samples, axes, hidden, numbers)


def _by_mask(name: str, leaf: np.ndarray, count: int) -> tuple[list[int], float] | None:
    """Return the length of each sample by a mask, and the mask's value in padding; None: it is no
    mask of lengths.
    """
    if leaf.ndim < 2 or leaf.size != count * leaf.shape[-1] or not is_mask(name, leaf):
        return None
    rows = leaf.reshape(count, -1)
    shown = rows[0, 0]
    if leaf.dtype.kind in "iu":
        shown = rows.dtype.type(1)
    is_shown = rows == shown
    of_samples = is_shown.sum(1).tolist()
    steps = np.arange(rows.shape[1])
    comes_first = steps < is_shown.sum(1, keepdims=True)
    # Without a row that shows all, it is not known which value shows.
    if not np.array_equal(is_shown, comes_first) or max(of_samples) < len(steps):
        return None
    others = rows[~is_shown]
    if others.size:
        return of_samples, float(others[0])
    if leaf.dtype.kind == "f":
        return None
    return of_samples, float(1 - int(shown))


def _are_lengths(name: str, given: Mapping[str, np.ndarray], count: int) -> bool:
    leaf = given[name]
    if leaf.shape != (count,) or leaf.dtype.kind not in "iu":
        return False
    if is_full_length(name, given):
        return True
    sizes: set[int] = set()
    for other in given.values():
        sizes.update(other.shape[1:])
    return "len" in name.lower() and leaf.min() > 0 and int(leaf.max()) in sizes


def _by_zeros(leaf: np.ndarray, axis: int) -> list[int]:
    """Return how far the numbers of each sample go along an axis before only zeros follow."""
    by_step = np.moveaxis(leaf, axis, 1)
    rows = by_step.reshape(*by_step.shape[:2], -1)
    used = rows.any(2)
    last = used.shape[1] - used[:, ::-1].argmax(1)
    return [int(length) for length in last]


def _axes_of(name: str, leaf: np.ndarray, longest: int) -> tuple[int, ...]:
    """Return the axes of an input that have the length of the longest sample."""
    axes = range(1, leaf.ndim)
    if leaf.dtype.kind == "f" and not is_mask(name, leaf):
        axes = axes[:1]  # the others are features
    return tuple(axis for axis in axes if leaf.shape[axis] == longest)


def padded_and_alone(inputs: Tree, lengths: Lengths) -> tuple[Tree, list[Tree]]:
    """Return a batch with padding, and each of its samples without padding.

    If the batch has no padding, its samples are cut: lengths descend to half of the longest.
    """
    of_samples = list(lengths.of_samples)
    if min(of_samples) == lengths.longest:
        last = len(of_samples) - 1
        for index in range(len(of_samples)):
            of_samples[index] -= index * (lengths.longest // 2) // last
        inputs = _each(inputs, partial(_cut, lengths, of_samples))
    alone = []
    for index, length in enumerate(of_samples):
        sample = sample_of(inputs, index)
        alone.append(_each(sample, partial(_cropped, lengths, length)))
    return inputs, alone


def _each(inputs: Tree, change: Callable[[str, np.ndarray], np.ndarray]) -> Tree:
    names = iter(named_leaves(inputs, SINGLE))
    return map_tree(lambda leaf: change(next(names), leaf), inputs)


def _cropped(lengths: Lengths, length: int, name: str, leaf: np.ndarray) -> np.ndarray:
    for axis in lengths.axes[name]:
        leaf = leaf.take(range(length), axis)
    return leaf


def _cut(lengths: Lengths, of_samples: Sequence[int], name: str, leaf: np.ndarray) -> np.ndarray:
    """Return an input whose samples are shorter: zeros, or what a mask hides, come after them."""
    if name in lengths.numbers:
        return np.array(of_samples, leaf.dtype)
    changed = leaf.copy()
    for axis in lengths.axes[name]:
        by_step = np.moveaxis(changed, axis, 1)
        for index, length in enumerate(of_samples):
            by_step[index, length:] = lengths.hidden.get(name, 0)
    return changed
