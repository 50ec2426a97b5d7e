"""Put what a net computed of each sample alone beside what it computed of all samples at once."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from resnet_fn.parity.trace.data import Trace
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.tree import Arrays, Tree, map_tree, named_leaves

Shape = tuple[int, ...]


def count_of(inputs: Tree) -> int:
    """Return the number of samples of a batch: the length of its first array."""
    arrays = (leaf for leaf in named_leaves(inputs, "").values() if leaf.ndim)
    return len(next(arrays, ()))


def sample_of(inputs: Tree, index: int) -> Tree:
    """Return a batch of one sample. Arrays without an axis of samples stay whole."""
    count = count_of(inputs)

    def taken(leaf: np.ndarray) -> np.ndarray:
        has_samples = leaf.ndim and len(leaf) == count
        return leaf[index : index + 1] if has_samples else leaf

    return map_tree(taken, inputs)


def beside(whole: Trace, alone: Sequence[Trace]) -> tuple[Trace, Trace, list[str]]:
    """Return the trace of all samples at once, the trace that those of each sample alone make
    together, and the names of outputs without an axis of samples.

    What only padding fills is 0 in both.
    """
    here: Arrays = {}
    there: Arrays = {}
    for name, array in whole.run.eval_outputs.items():
        parts = [one.run.eval_outputs.get(name) for one in alone]
        if pair := joined(array, parts):
            here[name], there[name] = pair
    by_title = [{layer.title: layer for layer in one.layers["eval"]} for one in alone]
    pairs = []
    for layer in whole.layers["eval"]:
        others = [one.get(layer.title) for one in by_title]
        if pair_of_layers := _layers_beside(layer, others):
            pairs.append(pair_of_layers)
    left = [name for name in whole.run.eval_outputs if name not in here]
    at_once = _with(whole, here, [one for one, _ in pairs])
    together = _with(whole, there, [other for _, other in pairs])
    return at_once, together, left


def _with(trace: Trace, outputs: Arrays, layers: list[Layer]) -> Trace:
    run = dataclasses.replace(trace.run, eval_outputs=outputs)
    return dataclasses.replace(trace, run=run, layers={"eval": layers})


def _layers_beside(whole: Layer, alone: Sequence[Layer | None]) -> tuple[Layer, Layer] | None:
    """Return a layer's execution with all samples, and the one that each sample alone makes
    together.
    """
    outputs = joined(whole.output, [one and one.output for one in alone])
    if outputs is None:
        return None
    inputs = joined(whole.input, [one and one.input for one in alone]) or (None, None)
    here, there = (
        dataclasses.replace(whole, input=inputs[side], output=outputs[side]) for side in (0, 1)
    )
    return here, there


def joined(
    whole: np.ndarray | None, parts: Sequence[np.ndarray | None]
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return an array of all samples, and the same array made of the parts of each sample.

    A part may be shorter along other axes: where no part has a number, both arrays are 0. None
    means that an array is missing, has no axis of samples, or that the parts do not fit.
    """
    given = [part for part in parts if part is not None]
    if whole is None or len(given) < len(parts):
        return None
    for axis in range(whole.ndim):
        places = _places(whole.shape, [part.shape for part in given], axis)
        if places is None:
            continue
        here = np.zeros_like(whole)
        there = np.zeros_like(whole)
        for place, part in zip(places, given, strict=True):
            here[place] = whole[place]
            there[place] = part
        return here, there
    return None


def _places(shape: Shape, parts: Sequence[Shape], axis: int) -> list[tuple[slice, ...]] | None:
    """Return where each part lies if all follow each other along `axis`; None: they do not fit."""
    start = 0
    places = []
    for part in parts:
        if len(part) != len(shape):
            return None
        end = start + part[axis]
        place = [slice(size) for size in part]
        place[axis] = slice(start, end)
        start = end
        limits = zip(place, shape, strict=True)
        if any(one.stop > size for one, size in limits):
            return None
        places.append(tuple(place))
    return places if start == shape[axis] else None
