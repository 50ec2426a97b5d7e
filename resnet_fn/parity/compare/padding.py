"""Compare what two convolutions see at the border: by how much they pad, and with which values."""

from collections.abc import Mapping

import numpy as np

from resnet_fn.parity.trace.difference import relative_error
from resnet_fn.parity.trace.layer import LAYER_TOLERANCE, Layer, Pads

# NumPy's kinds of padding by torch's names
_KINDS: Mapping[str, str] = {
    "zeros": "constant",
    "reflect": "reflect",
    "replicate": "edge",
    "circular": "wrap",
}


def kind_of_padding(port: Layer, reference: Layer) -> str | None:
    """Return a line if two convolutions pad as much, in or before the layer, but with other values.

    Returns an empty string if the padded inputs are equal, and None if the layers do not pad as
    much.
    """
    a, b = _padded(port), _padded(reference)
    if a is None or b is None or a.shape != b.shape:
        return None
    if relative_error(a, b) <= LAYER_TOLERANCE:
        return ""
    pads_more = max(port, reference, key=_amount)
    port_kind = _kind(pads_more, a)
    reference_kind = _kind(pads_more, b)
    if port_kind and reference_kind and port_kind != reference_kind:
        return f"padding by {port_kind} in the port, by {reference_kind} in the reference"
    if _amount(port) == _amount(reference):
        return None
    return "the port and the reference pad as much, one of them before the layer"


def _amount(layer: Layer) -> int:
    """Return by how much a layer itself pads."""
    pads: Pads = layer.settings["pads"]
    return sum(pads)


def _padded(layer: Layer) -> np.ndarray | None:
    """Return the layer's input with its padding, or None if a part of it is unknown."""
    pads: Pads | None = layer.settings.get("pads")
    word = layer.settings.get("padding_mode", "zeros")
    kind = _KINDS.get(word)
    if pads is None or kind is None:
        return None
    if layer.input is None or min(pads) < 0:
        return None
    return _pad(layer.input, pads, kind)


def _kind(layer: Layer, padded: np.ndarray) -> str:
    """Return the kind of padding by which the layer's input becomes `padded`, or an empty string."""
    pads: Pads = layer.settings["pads"]
    assert layer.input is not None
    for word, kind in _KINDS.items():
        made = _pad(layer.input, pads, kind)
        if made is None:
            continue
        if made.shape == padded.shape and relative_error(made, padded) <= LAYER_TOLERANCE:
            return word
    return ""


def _pad(array: np.ndarray, pads: Pads, kind: str) -> np.ndarray | None:
    before, after = pads[::2], pads[1::2]
    each = list(zip(before, after, strict=True))
    sizes = array.shape[-len(each) :]
    needed = {"constant": 0, "edge": 1}.get(kind, 1 + max(pads))
    if min(sizes) < needed:
        return None
    others = array.ndim - len(each)
    widths = [(0, 0)] * others + each
    padded: np.ndarray = np.pad(array, widths, mode=kind)  # type: ignore[call-overload]
    return padded
