"""The cause of a layer's output that differs, as far as its weights show it: each candidate is computed."""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from resnet_fn.parity.layers.difference import relative_error
from resnet_fn.parity.layers.layer import Layer, fingerprint
from resnet_fn.parity.origins import FITS, first_hints, here_and_there, origin_causes, sources_of

_SAME_GELU = 1e-5  # the two forms are about 1e-4 apart
_SOME = 10_000  # how many numbers of an activation are compared
_LARGE = 2**17  # how many scores of one head are computed


class LayerCase(NamedTuple):
    """The first layer whose output differs."""

    before: Sequence[Layer]  # our layers that ran before it, in execution order
    ours: Layer
    theirs: Layer
    weights: Mapping[str, np.ndarray]  # our weights that belong to it or to no layer, by name
    inputs: Mapping[str, np.ndarray]  # the net's


def layer_causes(case: LayerCase) -> list[str]:
    """Why a layer differs: the first candidate that fits; each is for some kinds of layers."""
    return first_hints(LAYER_CAUSES, case)


def _norm(case: LayerCase) -> list[str]:
    """Does the reference's LayerNorm normalize over another axis of the same size?"""
    ours, theirs, weights = case.ours, case.theirs, case.weights
    gamma, beta = weights.get(f"{ours.name}.gamma"), weights.get(f"{ours.name}.beta")
    x, y, other = ours.input, ours.output, theirs.output
    if gamma is None or beta is None or x is None or y is None or other is None:
        return []
    if gamma.ndim != 1 or ours.settings.get("over") != "layer":
        return []

    def over(axis: int, epsilon: float) -> np.ndarray:
        moved = np.moveaxis(x, axis, -1)
        normed = (moved - moved.mean(-1, keepdims=True)) / np.sqrt(moved.var(-1, keepdims=True) + epsilon)
        return np.moveaxis(normed * gamma + beta, -1, axis)

    eps = [side.settings.get("eps", ours.settings["eps"]) for side in (ours, theirs)]
    axes = [axis for axis in range(x.ndim - 1, -1, -1) if x.shape[axis] == len(gamma)]
    pair = here_and_there(((axis, over(axis, e)) for axis in axes for e in eps), y, other, turned=True)
    words = "it normalizes over axis {} of its input {}, the reference over what is axis {} here"
    fix = "transpose before it and back after it"
    return [f"{words.format(pair[0], list(x.shape), pair[1])}; {fix}"] if pair else []


def _gelu(case: LayerCase) -> list[str]:
    """Which approximation of GELU is each side? A user's class has no setting for it."""
    ours, theirs = case.ours, case.theirs
    if not (ours.kind == theirs.kind == "gelu") or ours.input is None or ours.output is None or theirs.output is None:
        return []
    x, y, other = (array.ravel()[:_SOME] for array in (ours.input, ours.output, theirs.output))
    gelus = {
        "none": x * 0.5 * (1 + np.array([math.erf(value / math.sqrt(2)) for value in x])),
        "tanh": x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    }
    pair = here_and_there(gelus.items(), y, other, _SAME_GELU)
    return [f"approximate {pair[0]} here, {pair[1]} in the reference"] if pair else []


def _between(case: LayerCase) -> list[str]:
    """How its input was made, if that differs; else its output: a block's, or one without its bias."""
    ours, theirs = case.ours, case.theirs
    if {ours.kind, theirs.kind} == {"attention", "dense"}:  # a whole and its last part have other inputs
        return []
    for what, a, b in (("input", ours.input, theirs.input), ("output", ours.output, theirs.output)):
        if a is not None and b is not None and (a.shape != b.shape or relative_error(a, b) > FITS):
            given = {} if what == "input" or ours.input is None else {"its input": ours.input}
            sources = {**given, **sources_of(case.before), **case.inputs, **case.weights}
            run = {one.name for one in case.before if not one.is_own}
            free = {k: w for k, w in case.weights.items() if w.ndim == 2 and k.rpartition(".")[0] not in run}
            return [f"its {what} {cause}" for cause in origin_causes(a, b, sources, free)]
    return []


def _attention(case: LayerCase) -> list[str]:
    """Does an attention differ in heads, scale, mask or the softmax's axis?

    One way of mixing q, k and v must give our output, and another the reference's.
    """
    before, ours, theirs, weights, inputs = case
    if "attention" not in (ours.kind, theirs.kind) and ours.kind != "dense":
        return []
    inside = [layer for layer in before if layer.kind == "dense" and layer.name.startswith(f"{ours.name}.")]
    if ours.is_own and inside:  # a user's class whose last part is a dense layer
        before, ours = inside[:-1], dataclasses.replace(inside[-1], output=ours.output)
    parts = _projections(before, ours, weights)
    last = f"{ours.name}.out_proj" if ours.kind == "attention" else ours.name
    weight, bias = weights.get(f"{last}.weight"), weights.get(f"{last}.bias", np.zeros(()))
    y, other = ours.output, theirs.output
    if parts is None or weight is None or weight.ndim != 2 or y is None or other is None or {y.ndim, other.ndim} != {3}:
        return []
    matrix = weight.T.astype(np.float64)
    (n, length, width), keys = (part.shape for part in list(parts.values())[:2])
    few = n if n == length else max(1, _LARGE // (length * keys[1]))  # as many samples as are compared
    parts = {name: part[:few] for name, part in parts.items()}
    y, other = (one[:few] if one.shape[0] == n else one[:, :few] for one in (y, other))
    given = [side.settings["num_heads"] for side in (ours, theirs) if "num_heads" in side.settings]
    heads = list(dict.fromkeys([*given, *(count for count in range(1, 33) if width % count == 0)]))
    masks = {name: np.asarray(mask)[:few] for name, mask in inputs.items() if np.shape(mask) == keys[:2]}
    ways = ((way, mixed @ matrix + bias) for way, mixed in _mixings(parts, heads, masks))
    if (pair := here_and_there(ways, y, other, turned=True)) is None:
        return []
    sizes = [{"size": width // int(way[0]), "width": width} for way in pair]
    return [
        f"attention: {words.format(a.format(**sizes[0]))} here, {b.format(**sizes[1])} in the reference"
        for words, a, b in zip(_WORDS, *pair, strict=True)
        if a != b
    ]


def _projections(
    before: Sequence[Layer], last: Layer, weights: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray] | None:
    """q, k, v [n, length, width] of a whole attention on one input, or of the dense layers before its last part."""
    if last.input is None or last.input.ndim != 3:
        return None
    width = last.input.shape[-1]
    fused: np.ndarray | None = None
    if last.kind == "attention":
        weight, bias = weights.get(f"{last.name}.in_proj_weight"), weights.get(f"{last.name}.in_proj_bias", 0.0)
        if weight is None or set(last.further[:2]) - {fingerprint(last.input)}:
            return None
        x = last.input if last.settings.get("batch_first") else last.input.swapaxes(0, 1)
        fused = x @ weight.T.astype(np.float64) + bias
    dense = [(one.name, one.output) for one in before if one.kind == "dense" and one.output is not None]
    if fused is None and dense and dense[-1][1].ndim == 3 and dense[-1][1].shape[-1] == 3 * width:
        fused = dense[-1][1]
    if fused is not None:
        return dict(zip(("the first third", "the second", "the last"), np.split(fused, 3, -1), strict=True))
    outputs = {name.rpartition(".")[2]: output for name, output in dense[-3:]}
    apart = len(outputs) == 3 and all(one.ndim == 3 and one.shape[-1] == width for one in outputs.values())
    return outputs if apart else None


_WORDS = ("{} heads", "queries, keys and values from {}", "scores times {}", "softmax over the {}", "mask: {}")


def _mixings(
    parts: Mapping[str, np.ndarray], heads: Sequence[int], masks: Mapping[str, np.ndarray]
) -> Iterator[tuple[tuple[str, ...], np.ndarray]]:
    """Ways of mixing that differ from the usual one in at most two respects, with their words; the usual first."""
    n, length, width = next(iter(parts.values())).shape
    keys = list(parts.values())[1].shape[1]
    scales = {"1/√{size}": (0, -0.5), "1/{size}": (0, -1.0), "1": (0, 0), "1/√{width}": (-0.5, 0)}  # powers of both
    hidden: dict[str, np.ndarray] = {"none": np.zeros((1, 1, 1, 1), bool)}
    for name, mask in masks.items():
        hidden[f"hides where {name} is 0"] = (mask == 0)[:, None, None]
        hidden[f"hides where {name} is not 0"] = (mask != 0)[:, None, None]
    if length == keys:
        hidden["hides later tokens"] = np.triu(np.ones((length, length), bool), 1)[None, None]
        hidden["hides earlier tokens"] = np.tril(np.ones((length, length), bool), -1)[None, None]
    alike = len({part.shape for part in parts.values()}) == 1
    orders = list(itertools.permutations(parts)) if alike else [tuple(parts)]
    options: tuple[Sequence[Any], ...] = (orders, list(scales), ("keys", "queries"), list(hidden))
    choices = itertools.product(*(range(len(option)) for option in options))
    for choice in sorted(choices, key=np.count_nonzero):
        if np.count_nonzero(choice) > 2:
            return
        order, scale, axis, hide = (option[index] for option, index in zip(options, choice, strict=True))
        of_width, of_size = scales[scale]
        for count in heads:
            size = width // count
            q, k, v = (parts[name].reshape(n, -1, count, size).transpose(0, 2, 1, 3) for name in order)
            masked = np.where(hidden[hide], -1e30, q @ k.swapaxes(2, 3) * width**of_width * size**of_size)
            along = -1 if axis == "keys" else -2
            shifted = np.exp(masked - masked.max(along, keepdims=True))
            mixed = shifted / shifted.sum(along, keepdims=True) @ v
            way = (str(count), ", ".join(order), scale, axis, hide)
            yield way, mixed.transpose(0, 2, 1, 3).reshape(n, length, width)


LAYER_CAUSES = (_norm, _gelu, _attention, _between)
