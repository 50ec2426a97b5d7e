"""Layer by layer: how outputs and inputs of both nets differ, and how two paired layers are set differently."""

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

TOLERANCE = 1e-5  # relative error of a layer's output or input that passes

Pads = tuple[int, int, int, int]  # zeros added at top, bottom, left, right


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


def settings_notes(ours: Sequence[Layer], theirs: Sequence[Layer], names: NameMap) -> list[str]:
    """Every setting that differs between paired layers, one line each: "bn1: eps 0.0001 here, 1e-05 in …"."""
    by_name = {layer.name: layer for layer in theirs if layer.call == 0}
    notes = []
    for layer in ours:
        other = by_name.get(names.layers.get(layer.name, ""))
        if layer.call == 0 and other is not None and layer.leaf and other.leaf:
            notes += [f"{layer.name}: {words}" for words in settings_differences(layer, other)]
    return notes


def settings_differences(ours: Layer, theirs: Layer) -> list[str]:
    """What is set differently in two layers, in words; empty if nothing is (or nothing that we know of).

    Padding is compared as it falls on this input: `same` at stride 1 is the same as padding 1/1, at stride 2 it is
    not.
    """
    if ours.kind != theirs.kind:
        return [f"it is {type(ours.layer).__name__} here, {type(theirs.layer).__name__} in the reference"]
    compare = {"conv": _convolution, "maxpool": _pool, "avgpool": _pool, "norm": _norm, "dense": _dense}
    return compare[ours.kind](ours, theirs) if ours.kind in compare else []


def _pair(value: Any) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value, value)


def _unequal(what: str, ours: Any, theirs: Any) -> list[str]:
    return [] if ours == theirs else [f"{what} {ours} here, {theirs} in the reference"]


def _convolution(ours: Layer, theirs: Layer) -> list[str]:
    a, b = ours.layer, theirs.layer
    found = _unequal("kernel_size", _pair(a.kernel_size), _pair(b.kernel_size))
    found += _unequal("stride", _pair(a.stride), _pair(b.stride))
    found += _unequal("dilation", _pair(a.dilation), _pair(b.dilation))
    found += _unequal("groups", a.group, b.groups)
    found += _unequal("bias", bool(a.has_bias), b.bias is not None)
    return found or _padding(ours, theirs)


def _pool(ours: Layer, theirs: Layer) -> list[str]:
    a, b = ours.layer, theirs.layer
    if not (hasattr(a, "kernel_size") and hasattr(b, "kernel_size")):
        return []
    found = _unequal("kernel_size", _pair(a.kernel_size), _pair(b.kernel_size))
    found += _unequal("stride", _pair(a.stride), _pair(b.stride))
    return found or _padding(ours, theirs)


def _padding(ours: Layer, theirs: Layer) -> list[str]:
    if ours.input is None or ours.input.ndim != 4:
        return []
    a, b = mindspore_pads(ours.layer, ours.input.shape[2:]), torch_pads(theirs.layer)
    if a is None or a == b:
        return []
    mode = str(ours.layer.pad_mode).lower()
    return [f"pad_mode {mode} pads {_words(a)}, the reference {_words(b)}"]


def _words(pads: Pads) -> str:
    top, bottom, left, right = pads
    rows, columns = f"{top}/{bottom}", f"{left}/{right}"
    return rows if rows == columns else f"{rows} rows, {columns} columns"


def mindspore_pads(layer: Any, size: Sequence[int]) -> Pads | None:
    """How many zeros a MindSpore convolution or pool adds on each side of an input of height and width `size`.

    None where the layer does not say.
    """
    mode = str(layer.pad_mode).lower()
    if mode == "valid":
        return (0, 0, 0, 0)
    if mode == "pad":
        padding = getattr(layer, "padding", None)
        if padding is None:
            return None
        padding = (padding,) * 4 if isinstance(padding, int) else tuple(padding)
        if len(padding) == 3:  # MaxPool2d carries its depth first
            return (padding[1], padding[1], padding[2], padding[2])
        return padding if len(padding) == 4 else (padding[0], padding[0], padding[1], padding[1])
    pads: list[int] = []
    dilation = _pair(getattr(layer, "dilation", 1))
    for extent, kernel, stride, spread in zip(
        size, _pair(layer.kernel_size), _pair(layer.stride), dilation, strict=True
    ):
        # What TensorFlow calls SAME: ⌈extent / stride⌉ outputs, the odd zero at the end.
        total = max((math.ceil(extent / stride) - 1) * stride + spread * (kernel - 1) + 1 - extent, 0)
        pads += [total // 2, total - total // 2]
    return (pads[0], pads[1], pads[2], pads[3])


def torch_pads(layer: Any) -> Pads:
    """How many zeros a torch convolution or pool adds on each side."""
    if layer.padding == "valid":
        return (0, 0, 0, 0)
    if layer.padding == "same":
        totals = [d * (k - 1) for d, k in zip(_pair(layer.dilation), _pair(layer.kernel_size), strict=True)]
        rows, columns = totals
        return (rows // 2, rows - rows // 2, columns // 2, columns - columns // 2)
    rows, columns = _pair(layer.padding)
    return (rows, rows, columns, columns)


def _norm(ours: Layer, theirs: Layer) -> list[str]:
    a, b = ours.layer, theirs.layer
    found = [] if math.isclose(a.eps, b.eps, rel_tol=1e-6) else [f"eps {a.eps:g} here, {b.eps:g} in the reference"]
    if hasattr(a, "momentum") and getattr(b, "momentum", None) is not None:
        # The cell keeps what the new statistics weigh, as torch means it; its argument was 1 − that.
        given, wanted = 1 - float(a.momentum), 1 - float(b.momentum)
        if math.isclose(given, b.momentum, abs_tol=1e-6) and not math.isclose(given, wanted, abs_tol=1e-6):
            found.append(
                f"momentum inverted: BatchNorm(momentum={given:g}) keeps {given:g} of the old statistics in MindSpore; "
                f"torch's momentum={b.momentum:g} is momentum={wanted:g} here"
            )
        elif not math.isclose(given, wanted, abs_tol=1e-6):
            found.append(f"momentum={given:g} here; torch's momentum={b.momentum:g} is momentum={wanted:g} here")
    return found


def _dense(ours: Layer, theirs: Layer) -> list[str]:
    a, b = ours.layer, theirs.layer
    found = _unequal("bias", bool(a.has_bias), b.bias is not None)
    activation = getattr(a, "activation", None)
    return found + ([f"an activation {activation} after it, none in the reference"] if activation else [])
