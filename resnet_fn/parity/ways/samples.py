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
    for leaf in named_leaves(inputs, "").values():
        if leaf.ndim:
            return len(leaf)
    return 0


def samples_of(inputs: Tree, start: int, stop: int) -> Tree:
    """Return a batch of some samples. Arrays without an axis of samples stay whole."""
    count = count_of(inputs)

    def taken(leaf: np.ndarray) -> np.ndarray:
        has_samples = leaf.ndim and len(leaf) == count
        return leaf[start:stop] if has_samples else leaf

    return map_tree(taken, inputs)


def beside(whole: Trace, alone: Sequence[Trace]) -> tuple[Trace, Trace, list[str]]:
    """Return the trace of all samples at once, the trace that those of each sample alone make
    together, and the names of outputs without an axis of samples.

    What only padding fills is 0 in both.
    """
    at_once: Arrays = {}
    together: Arrays = {}
    left = []
    for name, array in whole.run.eval_outputs.items():
        parts = [trace.run.eval_outputs.get(name) for trace in alone]
        pair = joined(array, parts)
        if pair:
            at_once[name], together[name] = pair
        else:
            left.append(name)
    layers = _layers_beside(whole, alone)
    return (
        _with(whole, at_once, layers[0]),
        _with(whole, together, layers[1]),
        left,
    )


def _with(trace: Trace, outputs: Arrays, layers: list[Layer]) -> Trace:
    run = dataclasses.replace(trace.run, eval_outputs=outputs)
    return dataclasses.replace(trace, run=run, layers={"eval": layers})


def _layers_beside(whole: Trace, alone: Sequence[Trace]) -> tuple[list[Layer], list[Layer]]:
    """Return the layers' executions with all samples, and those that each sample alone makes
    together.
    """
    by_title = []
    for trace in alone:
        by_title.append({layer.title: layer for layer in trace.layers["eval"]})
    both: tuple[list[Layer], list[Layer]] = ([], [])
    for layer in whole.layers["eval"]:
        others = [of_sample[layer.title] for of_sample in by_title if layer.title in of_sample]
        if len(others) < len(alone):
            continue
        outputs = joined(layer.output, [other.output for other in others])
        inputs = joined(layer.input, [other.input for other in others])
        if outputs is None:
            continue
        for side, layers in enumerate(both):
            input_ = inputs[side] if inputs else None
            executed = dataclasses.replace(
                layer,
                input=input_,
                output=outputs[side],
            )
            layers.append(executed)
    return both


def joined(
    whole: np.ndarray | None,
    parts: Sequence[np.ndarray | None],
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return an array of all samples, and the same array made of the parts of each sample.

    A part may be shorter along other axes: where no part has a number, both arrays are 0. None
    means that an array is missing, has no axis of samples, or that the parts do not fit.
    """
    present = [part for part in parts if part is not None]
    if whole is None or len(present) < len(parts):
        return None
    shapes = [part.shape for part in present]
    for axis in range(whole.ndim):
        places = _places(whole.shape, shapes, axis)
        if places is None:
            continue
        at_once = np.zeros_like(whole)
        together = np.zeros_like(whole)
        for slices, part in zip(places, present, strict=True):
            at_once[slices] = whole[slices]
            together[slices] = part
        return at_once, together
    return None


def _places(
    shape: Shape,
    parts: Sequence[Shape],
    axis: int,
) -> list[tuple[slice, ...]] | None:
    """Return where each part lies if all follow each other along `axis`; None: they do not fit.

    Along other axes, padding may be missing, but no other samples, as where pairs are compared.
    """
    start = 0
    places = []
    for part in parts:
        if len(part) != len(shape):
            return None
        end = start + part[axis]
        slices = [slice(size) for size in part]
        slices[axis] = slice(start, end)
        start = end
        limits = zip(slices, shape, strict=True)
        if any(span.stop > size for span, size in limits):
            return None
        for other, size in enumerate(part):
            if other != axis and size < shape[other] == len(parts):
                return None
        places.append(tuple(slices))
    if start != shape[axis]:
        return None
    return places
