"""Layer by layer: how outputs and inputs of both nets differ."""

import copy
import dataclasses
import math
from typing import Any

import numpy as np
from mindspore import nn

from resnet_fn.parity.compare import DIFFERS, Difference, difference
from resnet_fn.parity.layer import Layer
from resnet_fn.parity.match import NameMap
from resnet_fn.parity.mindspore_side.record import record_cell
from resnet_fn.parity.settings import settings_differences
from resnet_fn.parity.torch_side.record import record_torch

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


def compare_layers(net: nn.Cell, reference: Any, images: np.ndarray, names: NameMap) -> list[LayerDifference]:
    """Record both nets on the same images, in evaluation mode and in training mode, and compare layer by layer.

    Args:
        net, reference: with equal weights.
        images: [n, C, H, W].
        names: which layer is which; layers that only one net has are left out.
    """
    exact = copy.deepcopy(reference).double()
    found = []
    for mode in ("eval", "train"):
        train = mode == "train"
        theirs = {(layer.name, layer.call): layer for layer in record_torch(reference, images, train)}
        exactly = {(layer.name, layer.call): layer for layer in record_torch(exact, images, train)}
        for layer in record_cell(net, images, train):
            place = names.layers.get(layer.name, ""), layer.call
            if place in theirs and layer.output is not None and theirs[place].output is not None:
                found.append(_compare(mode, layer, theirs[place], exactly[place]))
    return found


def _compare(mode: str, ours: Layer, theirs: Layer, exact: Layer) -> LayerDifference:
    assert ours.output is not None
    assert theirs.output is not None
    same_shape = ours.output.shape == theirs.output.shape
    output = _arrays(ours.title, ours.output, theirs.output, exact.output)
    input_ = None
    if ours.input is not None and theirs.input is not None:
        input_ = _arrays(ours.title, ours.input, theirs.input, exact.input)
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
    sign_changes = int(np.sum((ours.output > 0) != (theirs.output > 0))) if same_shape else 0
    return LayerDifference(mode, ours.title, theirs.title, output, input_, tuple(hints), sign_changes)


def _arrays(name: str, a: np.ndarray, b: np.ndarray, exact: np.ndarray | None) -> Difference:
    if a.shape == b.shape:
        return difference(name, a, b, exact, TOLERANCE)
    return Difference(name, math.inf, math.inf, 0.0, float(a.size), float(b.size), (), 0.0, TOLERANCE)
