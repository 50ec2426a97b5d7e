"""How two layers that stand for each other are set differently: padding, stride, eps, momentum, …"""

import math
from collections.abc import Sequence
from typing import Any

from resnet_fn.parity.record import Layer

Pads = tuple[int, int, int, int]  # top, bottom, left, right


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
    if ours.given is None or ours.given.ndim != 4:
        return []
    a, b = our_pads(ours.layer, ours.given.shape[2:]), their_pads(theirs.layer)
    if a is None or a == b:
        return []
    mode = str(ours.layer.pad_mode).lower()
    return [f"pad_mode {mode} pads {_words(a)}, the reference {_words(b)}"]


def _words(pads: Pads) -> str:
    top, bottom, left, right = pads
    rows, columns = f"{top}/{bottom}", f"{left}/{right}"
    return rows if rows == columns else f"{rows} rows, {columns} columns"


def our_pads(layer: Any, size: Sequence[int]) -> Pads | None:
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


def their_pads(layer: Any) -> Pads:
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
