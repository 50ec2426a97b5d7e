"""Why a layer's output differs, where its weights say it: each candidate is computed and must fit to be named."""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from resnet_fn.layers.difference import relative_error
from resnet_fn.layers.layer import Layer, fingerprint

_FITS = 1e-3  # relative error up to which a candidate explains what is seen
_SAME_GELU = 1e-5  # the two forms are about 1e-4 apart
_SOME = 10_000  # numbers of an activation that say which it is
_LARGE = 2**24  # numbers in an attention's scores beyond which nobody waits for an explanation


class Case(NamedTuple):
    """The first layer whose output differs."""

    before: Sequence[Layer]  # ours that ran before it, in execution order
    ours: Layer
    theirs: Layer
    weights: Mapping[str, np.ndarray]  # ours, by name
    masks: Mapping[str, np.ndarray]  # the net's inputs [n, length] that may say which tokens count


def layer_causes(case: Case) -> list[str]:
    """Why a layer differs, by the first candidate that fits; each looks at its own kinds of layers."""
    return next((found for cause in (_norm, _gelu, _dense, _attention) if (found := cause(case))), [])


def _norm(case: Case) -> list[str]:
    """Does the reference's LayerNorm go over another axis, of as many numbers, of what is our input?"""
    ours, theirs, weights = case.ours, case.theirs, case.weights
    gamma, beta = weights.get(f"{ours.name}.gamma"), weights.get(f"{ours.name}.beta")
    x, y, other = ours.input, ours.output, theirs.output
    if gamma is None or beta is None or x is None or y is None or other is None or ours.settings.get("over") != "layer":
        return []
    if gamma.ndim != 1 or x.size > _LARGE:
        return []

    def over(axis: int, epsilon: float) -> np.ndarray:
        moved = np.moveaxis(x, axis, -1)
        normed = (moved - moved.mean(-1, keepdims=True)) / np.sqrt(moved.var(-1, keepdims=True) + epsilon)
        return np.moveaxis(normed * gamma + beta, -1, axis)

    last = x.ndim - 1
    if relative_error(y, over(last, ours.settings["eps"])) > _FITS:
        return []
    orders = [other.transpose(order) for order in itertools.permutations(range(other.ndim))]
    for axis in range(last):
        if x.shape[axis] == len(gamma):
            right = over(axis, theirs.settings.get("eps", ours.settings["eps"]))
            if any(one.shape == right.shape and relative_error(one, right) < _FITS for one in orders):
                return [
                    f"it normalizes over axis {last} of its input {list(x.shape)}, the reference over what is axis "
                    f"{axis} here; transpose before it and back after it"
                ]
    return []


def _gelu(case: Case) -> list[str]:
    """Which of GELU's forms is each side? A class of the user's has no setting that says it."""
    ours, theirs = case.ours, case.theirs
    if not (ours.kind == theirs.kind == "gelu") or ours.input is None or ours.output is None or theirs.output is None:
        return []
    x, y, other = (array.ravel()[:_SOME] for array in (ours.input, ours.output, theirs.output))
    forms = {
        "none": x * 0.5 * (1 + np.array([math.erf(value / math.sqrt(2)) for value in x])),
        "tanh": x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    }
    here, there = (min(forms, key=lambda form: relative_error(one, forms[form])) for one in (y, other))
    fits = max(relative_error(y, forms[here]), relative_error(other, forms[there])) < _SAME_GELU
    return [f"approximate {here} here, {there} in the reference"] if here != there and fits else []


def _dense(case: Case) -> list[str]:
    """Does a dense layer, or what stands in its place, use its square weight the other way round, or no bias?"""
    layer = case.ours
    weight, shift = _weights(layer.name, case.weights)
    x, y = layer.input, layer.output
    if layer.kind != "dense" or x is None or y is None or weight is None or x.shape[-1] != weight.shape[1]:
        return []
    candidates = {"its bias is not added": x @ weight.T}
    if weight.shape[0] == weight.shape[1]:
        candidates["its square weight is used transposed; MindSpore's Dense and torch's Linear keep [out, in]"] = (
            x @ weight + shift
        )
    right = x @ weight.T + shift
    return [
        words
        for words, value in candidates.items()
        if value.shape == y.shape and relative_error(y, value) < _FITS < relative_error(right, value)
    ]


def _weights(name: str, weights: Mapping[str, np.ndarray]) -> tuple[np.ndarray | None, np.ndarray]:
    """A dense layer's weight and bias in float64; 0 where it has no bias."""
    weight, bias = weights.get(f"{name}.weight"), weights.get(f"{name}.bias")
    shift = np.zeros(()) if bias is None else bias.astype(np.float64)
    return (None if weight is None or weight.ndim != 2 else weight.astype(np.float64)), shift


def _attention(case: Case) -> list[str]:
    """Does an attention mix otherwise than the reference's: its scale, its softmax's axis, its mask?

    From q, k and v one way of mixing must give our output, and another the reference's.
    """
    before, ours, theirs, weights, masks = case
    if "attention" not in (ours.kind, theirs.kind) and ours.kind != "dense":
        return []
    inside = [layer for layer in before if layer.kind == "dense" and layer.name.startswith(f"{ours.name}.")]
    if ours.is_own and inside:  # a class of the user's whose last part is a dense layer
        before, ours = inside[:-1], dataclasses.replace(inside[-1], output=ours.output)
    found = _projections(before, ours, weights)
    weight, shift = _weights(f"{ours.name}.out_proj" if ours.kind == "attention" else ours.name, weights)
    if found is None or weight is None or ours.output is None or theirs.output is None:
        return []
    width = found[0].shape[-1]
    known = ours.settings.get("num_heads") or theirs.settings.get("num_heads")
    for heads in [known] if known else [count for count in range(1, 33) if width % count == 0]:
        if heads * found[0].shape[0] * found[0].shape[1] * found[1].shape[1] > _LARGE:
            return []
        here = there = None
        for choice, mixed in _ways(*found, heads, masks):
            result = mixed @ weight.T + shift
            here = here or (choice if _is(ours.output, result) else None)
            there = there or (choice if _is(theirs.output, result) else None)
        if here and there and here != there:
            return [
                f"attention: {what} {a} here, {b} in the reference"
                for what, a, b in zip(("scores times", "softmax over the", "mask:"), here, there, strict=True)
                if a != b
            ]
    return []


def _is(array: np.ndarray, result: np.ndarray) -> bool:
    """Whether an array is this result [n, length, width], in this order of axes or with the sequence first."""
    if array.size != result.size:
        return False
    orders = [array.reshape(result.shape)]
    if array.ndim == 3 and array.swapaxes(0, 1).shape == result.shape:
        orders.append(array.swapaxes(0, 1))
    return min(relative_error(order, result) for order in orders) < _FITS


def _projections(
    before: Sequence[Layer], last: Layer, weights: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """q, k, v [n, length, width]: of a whole attention on one input; of the dense layers before its last part."""
    if last.input is None or last.input.ndim != 3:
        return None
    width = last.input.shape[-1]
    fused: np.ndarray | None = None
    if last.kind == "attention":
        weight, bias = weights.get(f"{last.name}.in_proj_weight"), weights.get(f"{last.name}.in_proj_bias")
        if weight is None or set(last.further[:2]) - {fingerprint(last.input)}:
            return None
        x = last.input if last.settings.get("batch_first") else last.input.swapaxes(0, 1)
        fused = x @ weight.T.astype(np.float64) + (0.0 if bias is None else bias)
    outputs = [layer.output for layer in before if layer.kind == "dense" and layer.output is not None]
    if fused is None and outputs and outputs[-1].ndim == 3 and outputs[-1].shape[-1] == 3 * width:
        fused = outputs[-1]
    if fused is not None:
        q, k, v = np.split(fused, 3, -1)
        return q, k, v
    if len(outputs) >= 3 and all(one.ndim == 3 and one.shape[-1] == width for one in outputs[-3:]):
        return outputs[-3], outputs[-2], outputs[-1]
    return None


def _ways(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, heads: int, masks: Mapping[str, np.ndarray]
) -> Iterator[tuple[tuple[str, str, str], np.ndarray]]:
    """Every way of mixing with its words; the usual first."""
    n, length, width = q.shape
    size = width // heads

    def split(x: np.ndarray) -> np.ndarray:
        return x.reshape(n, -1, heads, size).transpose(0, 2, 1, 3)

    scores = split(q) @ split(k).swapaxes(2, 3)
    scales = {f"1/√{size}": size**-0.5, f"1/{size}": 1 / size, "1": 1.0, f"1/√{width}": width**-0.5}
    hidden: dict[str, np.ndarray] = {"none": np.zeros((1, 1, 1, 1), bool)}
    for name, mask in masks.items():
        if mask.shape == (n, k.shape[1]):
            hidden[f"hides where {name} is 0"] = (mask == 0)[:, None, None]
            hidden[f"hides where {name} is not 0"] = (mask != 0)[:, None, None]
    if length == k.shape[1]:
        hidden["hides later tokens"] = np.triu(np.ones((length, length), bool), 1)[None, None]
        hidden["hides earlier tokens"] = np.tril(np.ones((length, length), bool), -1)[None, None]
    for axis, axis_words in ((-1, "keys"), (-2, "queries")):
        for scale_words, scale in scales.items():
            for words, hide in hidden.items():
                masked = np.where(hide, -1e30, scores * scale)
                shifted = np.exp(masked - masked.max(axis, keepdims=True))
                mixed = shifted / shifted.sum(axis, keepdims=True) @ split(v)
                yield (scale_words, axis_words, words), mixed.transpose(0, 2, 1, 3).reshape(n, length, width)
