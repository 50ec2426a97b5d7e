"""Find which inputs have padding, and make the same samples without it."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from resnet_fn.parity.record.variations import is_full_length
from resnet_fn.parity.trace.probes import is_mask
from resnet_fn.parity.trace.tree import Tree, map_tree, named_leaves
from resnet_fn.parity.ways.samples import count_of, samples_of
from resnet_fn.parity.ways.way import NotApplicableError

SINGLE = "inputs"  # the name of a single input

Change = Callable[[str, np.ndarray], np.ndarray]  # gets the name of an input, too


@dataclasses.dataclass(frozen=True)
class Lengths:
    """How long each sample of a batch is, and where its length is."""

    longest: int
    of_samples: Sequence[int]
    axes: Mapping[str, Sequence[int]]  # the axes of each input that have this length
    hidden: Mapping[str, float]  # what each mask has in a sample's padding
    numbers: Sequence[str]  # names of inputs that are the lengths themselves


def lengths_of(
    inputs: Tree,
    named: Mapping[str, int],
) -> Lengths | None:
    """Return the lengths of a batch by its masks, its lengths, or the axes that the user names.

    None means that no input shows them. Padding comes after each sample. Raises NotApplicableError
    if masks disagree and no axis is named, or if an axis of integers has no padding.
    """
    leaves = named_leaves(inputs, SINGLE)
    count = count_of(inputs)
    hidden: dict[str, float] = {}
    numbers: list[str] = []
    # by what shows them: the longest, and the length of each sample
    shown: dict[str, tuple[int, Sequence[int]]] = {}
    masks = _masks_in(leaves, count)
    for name, leaf in leaves.items():
        if name in masks:
            of_samples, hidden[name] = masks[name]
            shown["mask"] = leaf.shape[-1], of_samples
        elif _are_lengths(name, leaves, count):
            numbers.append(name)
            shown["lengths"] = int(leaf.max()), leaf.tolist()
        if name in named:
            axis = named[name]
            shown["axis"] = leaf.shape[axis], _by_zeros(leaf, axis)
    disagree = len({tuple(of_samples) for of_samples, _ in masks.values()}) > 1
    if disagree:  # as those of a source and a target
        if not named:
            raise NotApplicableError(
                "not exercised: masks show several lengths of a sample; name the axis of one: "
                "--length-axis NAME=AXIS"
            )
        del shown["mask"]
    for kind in ("mask", "lengths", "axis"):
        if kind not in shown:
            continue
        longest, lengths = shown[kind]
        if kind == "axis" and min(lengths) == longest and not hidden:
            _check_hidden(leaves, named)
        axes: dict[str, Sequence[int]] = {}
        for name, leaf in leaves.items():
            has_lengths = not disagree or (name in masks and masks[name][0] == lengths)
            axes[name] = _axes_of(name, leaf, longest) if has_lengths else []
            if name in named:
                axes[name] = [named[name]]
        return Lengths(longest, lengths, axes, hidden, numbers)
    return None


def _masks_in(leaves: Mapping[str, np.ndarray], count: int) -> dict[str, tuple[list[int], float]]:
    """Return `_by_mask` of the inputs that are masks of lengths.

    If one has a full sample, those without are none: they may mark a part of each sample.
    """
    masks = {}
    full = {}
    for name, leaf in leaves.items():
        if mask := _by_mask(name, leaf, count):
            masks[name] = mask
            if max(mask[0]) == leaf.shape[-1]:
                full[name] = mask
    return full or {name: mask for name, mask in masks.items() if max(mask[0]) > 1}


def _check_hidden(leaves: Mapping[str, np.ndarray], named: Mapping[str, int]) -> None:
    # else they would be cut, and 0 may be a number like any other
    integers = [name for name in named if leaves[name].dtype.kind in "iu"]
    if integers:
        words = ", ".join(name.removeprefix(f"{SINGLE} ") for name in integers)
        raise NotApplicableError(
            f"not exercised: no sample of {words} ends with zeros, and no mask hides padding; give "
            "samples of several lengths, or a mask"
        )


def _by_mask(
    name: str,
    leaf: np.ndarray,
    count: int,
) -> tuple[list[int], float] | None:
    """Return the length of each sample by a mask, and the mask's value in padding; None: it is no
    mask of lengths.
    """
    if leaf.ndim < 2 or not is_mask(name, leaf):
        return None
    if leaf.size != count * leaf.shape[-1]:
        return None
    rows = leaf.reshape(count, -1)
    of_integers = leaf.dtype.kind in "iu"
    value = rows.dtype.type(1) if of_integers else rows[0, 0]
    is_shown = rows == value
    lengths = is_shown.sum(1)
    steps = np.arange(rows.shape[1])
    comes_first = steps < lengths[:, None]
    if not np.array_equal(is_shown, comes_first):
        return None
    # without a row that shows all, it is not known which value shows; of integers, 1 does
    if lengths.max() < len(steps) and not of_integers:
        return None
    if not lengths.min():  # as of token types, which are all 0
        return None
    others = rows[~is_shown]
    if others.size:
        return lengths.tolist(), float(others[0])
    if leaf.dtype.kind == "f":
        return None
    hidden = 1 - int(value)
    return lengths.tolist(), float(hidden)


def _are_lengths(
    name: str,
    leaves: Mapping[str, np.ndarray],
    count: int,
) -> bool:
    leaf = leaves[name]
    if leaf.shape != (count,) or leaf.dtype.kind not in "iu":
        return False
    if is_full_length(name, leaves):
        return True
    if "len" not in name.lower() or leaf.min() < 1:
        return False
    longest = int(leaf.max())
    return any(longest in other.shape[1:] for other in leaves.values())


def _by_zeros(leaf: np.ndarray, axis: int) -> list[int]:
    """Return how far the numbers of each sample go along an axis before only zeros follow."""
    by_step = np.moveaxis(leaf, axis, 1)
    count, steps = by_step.shape[:2]
    rows = by_step.reshape(count, steps, -1)
    used = rows.any(2)
    backward = np.flip(used, 1)
    zeros = backward.argmax(1)
    lengths = steps - zeros
    return [int(length) for length in lengths]


def _axes_of(name: str, leaf: np.ndarray, longest: int) -> list[int]:
    """Return the axes of an input that have the length of the longest sample."""
    axes = range(1, leaf.ndim)
    if leaf.dtype.kind == "f" and not is_mask(name, leaf):
        axes = axes[:1]  # the others are features
    return [axis for axis in axes if leaf.shape[axis] == longest]


def padded_and_alone(
    inputs: Tree,
    lengths: Lengths,
) -> tuple[Tree, list[Tree]]:
    """Return a batch with padding, and each of its samples without padding.

    If the batch has no padding, its samples are cut: lengths descend to half of the longest.
    """
    of_samples = list(lengths.of_samples)
    if min(of_samples) == lengths.longest:
        last = len(of_samples) - 1
        half = lengths.longest // 2
        for index in range(len(of_samples)):
            of_samples[index] -= index * half // last
        change = partial(_cut, lengths, of_samples)
        inputs = _each(inputs, change)
    alone = []
    for index, length in enumerate(of_samples):
        sample = samples_of(inputs, index, index + 1)
        change = partial(_cropped, lengths, length)
        alone.append(_each(sample, change))
    return inputs, alone


def _each(inputs: Tree, change: Change) -> Tree:
    names = iter(named_leaves(inputs, SINGLE))
    return map_tree(lambda leaf: change(next(names), leaf), inputs)


def _cropped(
    lengths: Lengths,
    length: int,
    name: str,
    leaf: np.ndarray,
) -> np.ndarray:
    for axis in lengths.axes[name]:
        leaf = leaf.take(range(length), axis)
    return leaf


def _cut(
    lengths: Lengths,
    of_samples: Sequence[int],
    name: str,
    leaf: np.ndarray,
) -> np.ndarray:
    """Return an input whose samples are shorter: zeros, or what a mask hides, come after them."""
    if name in lengths.numbers:
        return np.array(of_samples, leaf.dtype)
    padding = lengths.hidden.get(name, 0)
    changed = leaf.copy()
    for axis in lengths.axes[name]:
        by_step = np.moveaxis(changed, axis, 1)
        for index, length in enumerate(of_samples):
            by_step[index, length:] = padding
    return changed
