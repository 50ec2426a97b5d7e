"""How two paired layers are set differently.

Each side describes its layers in the same words: `kernel_size`, `stride`, `dilation`, `groups`, `bias`, `pads` (zeros
at top, bottom, left, right, as they fall on this input), `pad_mode` (MindSpore's), `eps`, `momentum` (what the new
statistics weigh, as torch means it), `activation`.
"""

import math
from collections.abc import Sequence
from typing import Any

from resnet_fn.parity.layer import Layer

Pads = tuple[int, int, int, int]  # zeros added at top, bottom, left, right


def pair(value: Any) -> tuple[int, ...]:
    """One number for both directions, or a number for each."""
    return tuple(value) if isinstance(value, tuple | list) else (value, value)


def settings_notes(ours: Sequence[Layer], theirs: Sequence[Layer], layers: dict[str, str]) -> list[str]:
    """Every setting that differs between paired layers, one line each: "bn1: eps 0.0001 here, 1e-05 in …".

    Args:
        ours, theirs: one recorded forward pass of each net.
        layers: the MindSpore layer's path → the reference's.
    """
    by_name = {layer.name: layer for layer in theirs if layer.call == 0}
    notes = []
    for layer in ours:
        other = by_name.get(layers.get(layer.name, ""))
        if layer.call == 0 and other is not None and layer.leaf and other.leaf:
            notes += [f"{layer.name}: {words}" for words in settings_differences(layer, other)]
    return notes


def settings_differences(ours: Layer, theirs: Layer) -> list[str]:
    """What is set differently in two layers, in words; empty if nothing is (or nothing that we know of).

    Padding is compared as it falls on this input: `same` at stride 1 is the same as padding 1/1, at stride 2 it is
    not.
    """
    if ours.kind != theirs.kind:
        return [f"it is {ours.class_name} here, {theirs.class_name} in the reference"]
    a, b = ours.settings, theirs.settings
    found = []
    for name in ("kernel_size", "stride", "dilation", "groups", "bias"):
        if name in a and name in b and a[name] != b[name]:
            found.append(f"{name} {a[name]} here, {b[name]} in the reference")
    if not found and a.get("pads") is not None and b.get("pads") is not None and a["pads"] != b["pads"]:
        found.append(f"pad_mode {a['pad_mode']} pads {_words(a['pads'])}, the reference {_words(b['pads'])}")
    if "eps" in a and "eps" in b and not math.isclose(a["eps"], b["eps"], rel_tol=1e-6):
        found.append(f"eps {a['eps']:g} here, {b['eps']:g} in the reference")
    if "momentum" in a and "momentum" in b:
        found += _momentum(1 - a["momentum"], b["momentum"])
    if a.get("activation"):
        found.append(f"an activation {a['activation']} after it, none in the reference")
    return found


def _words(pads: Pads) -> str:
    top, bottom, left, right = pads
    rows, columns = f"{top}/{bottom}", f"{left}/{right}"
    return rows if rows == columns else f"{rows} rows, {columns} columns"


def _momentum(given: float, theirs: float) -> list[str]:
    """MindSpore's argument says how much of the old statistics stays, torch's how much of the new is added."""
    wanted = 1 - theirs
    if math.isclose(given, wanted, abs_tol=1e-6):
        return []
    if math.isclose(given, theirs, abs_tol=1e-6):
        return [
            f"momentum inverted: BatchNorm(momentum={given:g}) keeps {given:g} of the old statistics in MindSpore; "
            f"torch's momentum={theirs:g} is momentum={wanted:g} here"
        ]
    return [f"momentum={given:g} here; torch's momentum={theirs:g} is momentum={wanted:g} here"]
