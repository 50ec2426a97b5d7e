"""Layer by layer: what each one gives in both nets, what it was given, and how it is set."""

import copy
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from mindspore import nn

from resnet_fn.parity.compare import DIFFERS, Difference, difference
from resnet_fn.parity.match import NameMap
from resnet_fn.parity.record import Layer, record_cell, record_torch
from resnet_fn.parity.settings import settings_differences

# In training mode BatchNorm divides by the spread of few values, which enlarges whatever rounding its input has.
LAYER_TOLERANCES = {"eval": 1e-5, "train": 1e-5}


@dataclasses.dataclass(frozen=True)
class LayerDifference:
    """One layer of both nets.

    Attributes:
        mode: "eval" or "train".
        name, theirs: our layer's path and the reference's; with the call's number from the second call on.
        output: how its outputs differ.
        given: how its inputs differ; None where they are not one tensor each.
        hints: what is set differently, and whether its input differed already.
        flips: how many values of its output are above 0 in one net only.
    """

    mode: str
    name: str
    theirs: str
    output: Difference
    given: Difference | None
    hints: tuple[str, ...]
    flips: int


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
    tolerance = LAYER_TOLERANCES[mode]
    output = _arrays(ours.title, ours.output, theirs.output, exact.output, tolerance)
    given = None
    if ours.given is not None and theirs.given is not None:
        given = _arrays(ours.title, ours.given, theirs.given, exact.given, tolerance)
    hints: list[str] = []
    if output.verdict == DIFFERS:
        hints += settings_differences(ours, theirs)
        if given is not None and given.verdict == DIFFERS:
            hints.append(
                "its input differs already and no earlier layer's output does: look at what happens between the "
                "layers (a function, a sum, a concatenation)"
            )
        if ours.output.shape != theirs.output.shape:
            hints.append(f"its output is {ours.output.shape} here, {theirs.output.shape} in the reference")
    flips = int(np.sum((ours.output > 0) != (theirs.output > 0))) if ours.output.shape == theirs.output.shape else 0
    return LayerDifference(mode, ours.title, theirs.title, output, given, tuple(hints), flips)


def _arrays(name: str, a: Any, b: Any, exact: Any, tolerance: float) -> Difference:
    if a.shape == b.shape:
        return difference(name, a, b, exact, tolerance)
    return Difference(name, math.inf, math.inf, 0.0, float(a.size), float(b.size), (), 0.0, tolerance)


def settings_notes(ours: Sequence[Layer], theirs: Sequence[Layer], names: NameMap) -> list[str]:
    """Every setting that differs between paired layers, one line each: "bn1: eps 0.0001 here, 1e-05 in …"."""
    by_name = {layer.name: layer for layer in theirs if layer.call == 0}
    notes = []
    for layer in ours:
        other = by_name.get(names.layers.get(layer.name, ""))
        if layer.call == 0 and other is not None and layer.leaf and other.leaf:
            notes += [f"{layer.name}: {words}" for words in settings_differences(layer, other)]
    return notes
