"""Layer by layer: how outputs and inputs of both nets differ."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from resnet_fn.layers.difference import CEILING, DIFFERS, Difference, difference
from resnet_fn.layers.layer import Layer
from resnet_fn.parity.layer_causes import Case, layer_causes
from resnet_fn.parity.notes import settings_differences
from resnet_fn.parity.trace import SIGMAS, Tree, named_leaves

_NEAR = 4  # layers among which the activation after a layer is looked for
TOLERANCE = 1e-5  # relative error of a layer's output or input that passes


@dataclasses.dataclass(frozen=True)
class LayerDifference:
    """One layer of both nets.

    Attributes:
        mode: "eval" or "train".
        name, theirs: the MindSpore layer's path and the reference's; with the call's number from the second call on.
        output: how its outputs differ.
        input: how its inputs differ; None where they are not one tensor each.
        hints: what is set differently, and whether its input differed already.
        sign_changes: how many values of its output are above 0 in one net only.
    """

    mode: str
    name: str
    theirs: str
    output: Difference
    input: Difference | None
    hints: tuple[str, ...]
    sign_changes: int


def compare_layers(
    ours: Mapping[str, Sequence[Layer]],
    theirs: Mapping[str, Sequence[Layer]],
    layers: Mapping[str, str],
    weights: Mapping[str, np.ndarray] | None = None,
    inputs: Tree = None,
) -> list[LayerDifference]:
    """Compare layer by layer what both nets did with the same inputs and equal weights.

    Args:
        ours, theirs: every layer's executions, in evaluation mode ("eval") and in training mode ("train").
        layers: the MindSpore layer's path → the reference's; layers that only one net has are left out.
        weights: our parameters, by name; with them the first layer that differs is looked into for its cause.
        inputs: what both nets were called with: a mask among them may be the cause.
    """
    found: list[LayerDifference] = []
    given = {name: leaf for name, leaf in named_leaves(inputs, "inputs").items() if leaf is not None}
    for mode, executions in ours.items():
        places = {(layer.name, layer.call): place for place, layer in enumerate(theirs[mode])}
        for index, layer in enumerate(executions):
            place = places.get((layers.get(layer.name, ""), layer.call))
            other = None if place is None else theirs[mode][place]
            if place is None or other is None or layer.output is None or other.output is None:
                continue
            if (layer.input is None or other.input is None) and layer.output.size != other.output.size:
                continue  # a table in a part of its own, which is called without an input
            item = _compare(mode, layer, other)
            if item.output.verdict == DIFFERS:
                after, after_other = executions[index + 1 : index + _NEAR], theirs[mode][place + 1 : place + _NEAR]
                item = _with_what_follows(mode, (layer, after), (other, after_other)) or item
            if item.output.verdict == DIFFERS and weights and all(one.output.verdict != DIFFERS for one in found):
                arrays = {name: _as_ours(getattr(layer, name), getattr(other, name)) for name in ("input", "output")}
                of_others = [one for one in executions if not f"{one.name}.".startswith(f"{layer.name}.")]
                owned = {f"{one.name}.{leaf}" for one in of_others if not one.is_own for leaf, _ in one.parameters}
                free = {name: value for name, value in weights.items() if name not in owned}
                case = Case(executions[:index], layer, dataclasses.replace(other, **arrays), free, given)
                causes = layer_causes(case)
                item = dataclasses.replace(item, hints=tuple(causes)) if causes else item
            found.append(item)
    return found


def _with_what_follows(
    mode: str, ours: tuple[Layer, Sequence[Layer]], theirs: tuple[Layer, Sequence[Layer]]
) -> LayerDifference | None:
    """The comparison in which one layer stands for two: timm's BatchNormAct2d is a BatchNorm and the ReLU after it.

    None where what follows does not make them the same.
    """
    pairs = [(_joined(ours[0], after), theirs[0]) for after in _followers(*ours)]
    pairs += [(ours[0], _joined(theirs[0], after)) for after in _followers(*theirs)]
    found = (_compare(mode, *pair) for pair in pairs)
    return next((item for item in found if item.output.verdict != DIFFERS), None)


def _followers(layer: Layer, others: Sequence[Layer]) -> list[Layer]:
    """Layers without parameters whose input is the layer's output."""
    if layer.output is None:
        return []
    plain = [other for other in others if other.leaf and not other.parameters]
    return [other for other in plain if other.input is not None and np.array_equal(other.input, layer.output)]


def _joined(layer: Layer, after: Layer) -> Layer:
    return dataclasses.replace(layer, output=after.output, output_rounding=after.output_rounding)


def _compare(mode: str, ours: Layer, theirs: Layer) -> LayerDifference:
    assert ours.output is not None
    assert theirs.output is not None
    theirs_output = _as_ours(ours.output, theirs.output)
    same_shape = ours.output.shape == theirs_output.shape
    output = _arrays(ours.title, ours.output, theirs_output, theirs.output_rounding)
    input_ = None
    # A port's last projection stands for a whole attention: the same output from another input.
    if ours.input is not None and theirs.input is not None and {ours.kind, theirs.kind} != {"attention", "dense"}:
        input_ = _arrays(ours.title, ours.input, _as_ours(ours.input, theirs.input), theirs.input_rounding)
    hints: list[str] = []
    if output.verdict == DIFFERS:
        hints += settings_differences(ours, theirs)
        if input_ is not None and input_.verdict == DIFFERS:
            hints.append(
                "its input differs already and no earlier layer's output does: look at what happens between the "
                "layers (a function, a sum, a concatenation)"
            )
        if not same_shape:
            hints.append(f"its output is {ours.output.shape} here, {theirs.output.shape} in the reference")
    sign_changes = int(np.sum((ours.output > 0) != (theirs_output > 0))) if same_shape else 0
    return LayerDifference(mode, ours.title, theirs.title, output, input_, tuple(hints), sign_changes)


def _as_ours(ours: Any, theirs: Any) -> Any:
    """The reference's array in our order of axes: where only one axis stands elsewhere, or the shape alone is another.

    A port may keep channels last where the reference has them second, or the sequence before the batch.
    """
    if ours is None or theirs is None or ours.shape == theirs.shape or ours.size != theirs.size:
        return theirs
    candidates = [theirs.reshape(ours.shape)]
    if ours.ndim == theirs.ndim:
        axes = range(ours.ndim)
        moved = (np.moveaxis(theirs, a, b) for a in axes for b in axes if a != b)
        candidates += [array for array in moved if array.shape == ours.shape]
    return min(candidates, key=lambda array: float(np.linalg.norm(ours - array)))


def _arrays(name: str, a: np.ndarray, b: np.ndarray, rounding: float) -> Difference:
    if a.shape == b.shape:
        return difference(name, a, b, tolerance=TOLERANCE, rounding=rounding)
    return Difference(name, math.inf, math.inf, 0.0, float(a.size), float(b.size), (), 0.0, TOLERANCE)


def tie_width(layers: Sequence[LayerDifference]) -> float:
    """How far from 0 a tie may lie (`Flipped`), relative to the root mean square of the ReLU's input.

    By the layers that are sure: one that is undecided says nothing of the others.
    """
    outputs = [one.output for one in layers if one.mode == "train" and one.output.rounding < CEILING]
    return SIGMAS * max((max(output.relative, output.rounding) for output in outputs), default=0.0)
