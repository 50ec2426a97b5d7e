"""Describe differences in the settings of layers and in shared parameters."""

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from resnet_fn.config.wording import words_of
from resnet_fn.parity.compare.padding import kind_of_padding
from resnet_fn.parity.pair.name_map import NameMap
from resnet_fn.parity.trace.difference import DIFFERS, difference
from resnet_fn.parity.trace.layer import LAYER_TOLERANCE, Layer, Pads
from resnet_fn.parity.trace.tree import Arrays

# Settings that are compared by special rules. All other settings are compared for equality.
_OWN_RULE = (
    "pads",
    "pad_mode",
    "transposed",
    "zeros_after",
    "momentum",
    "activation",
    "batch_first",
)

# Kinds of layers that may be paired without a note.
_ALIKE = ({"attention", "dense"}, {"dropout", "identity"})

# of a pool
_WINDOW = (
    "kernel_size",
    "stride",
    "dilation",
    "pads",
    "ceil_mode",
    "count_include_pad",
    "output_size",
)


# How a BatchNorm uses statistics, what it is called where it never uses the batch's, and what a
# convolution sees around its input.
_STATISTICS, _NEVER = ("batch_statistics", "momentum"), "never"
_BORDER = ("pads", "padding_mode")


def attempt(search: Callable[..., list[str]], *arguments: Any) -> list[str]:
    """Return the lines that `search` returns, or one line about the error that `search` raises."""
    return first_found(lambda: search(*arguments))


class NoCause(str):
    """A line of a search that names no cause, but why none was found."""


def first_found(*searches: Callable[[], Sequence[str]]) -> list[str]:
    """Return the lines of the first search that finds a cause, and those of searches before it that
    failed or stopped (`NoCause`).
    """
    others: list[str] = []
    for search in searches:
        try:
            lines = [*search()]
        except Exception as error:
            failure = f"the search for a cause failed ({words_of(error)})"
            lines = [NoCause(f"{failure}; the verdict does not depend on it")]
        if any(not isinstance(line, NoCause) for line in lines):
            return [*lines, *others]
        others += lines
    return others


def settings_notes(
    port: Sequence[Layer],
    reference: Sequence[Layer],
    layers: dict[str, str],
    same: Collection[str] = (),
) -> list[str]:
    """Return one line for each setting that differs.

    `layers` maps paths of the port's layers to the reference's. In the port's layers `same`, whose
    outputs agree in training mode, a norm that never uses the batch's statistics may be one that is
    never in training mode in the other net.
    """
    by_name = {layer.name: layer for layer in reference if layer.call == 0}
    notes = []
    for layer in port:
        reference_layer = by_name.get(layers.get(layer.name, ""))
        if layer.call or reference_layer is None or not layer.leaf or not reference_layer.leaf:
            continue
        pair = layer, reference_layer
        if layer.name in same and _NEVER in map(_statistics_of, pair):
            pair = _without(layer, _STATISTICS), _without(reference_layer, _STATISTICS)
        notes += [
            f"{layer.name}: {difference}" for difference in attempt(settings_differences, *pair)
        ]
    return notes


def with_frozen_norms(layers: Mapping[str, Sequence[Layer]]) -> list[Layer]:
    """Return the layers of evaluation mode, with the setting "never" of a norm that computes the
    same in both modes from the same input: its class may keep it out of training mode.
    """
    training = {layer.title: layer for layer in layers["train"]}
    changed = []
    for layer in layers["eval"]:
        is_frozen = _statistics_of(layer) == _NEVER
        other = training.get(layer.title)
        if other is not None and _statistics_of(layer) == "in training":
            same_input = _are_equal(layer.input, other.input)
            is_frozen = same_input and _are_equal(layer.output, other.output)
        if is_frozen:
            layer = _without(layer, _STATISTICS, batch_statistics=_NEVER)
        changed.append(layer)
    return changed


def _are_equal(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    return a is not None and b is not None and np.array_equal(a, b)


def _statistics_of(layer: Layer) -> str:
    return str(layer.settings.get("batch_statistics", ""))


def _without(layer: Layer, left_out: Collection[str], **others: Any) -> Layer:
    """Return a layer without the settings `left_out`, and with other settings."""
    settings = {name: value for name, value in layer.settings.items() if name not in left_out}
    return dataclasses.replace(layer, settings={**settings, **others})


def unmatched_notes(port: Sequence[Layer], reference: Sequence[Layer]) -> list[str]:
    """Return one line for each setting that differs between nets whose parameters cannot be
    paired.
    """
    port_layers = [layer for layer in port if layer.leaf and layer.call == 0]
    reference_layers = [layer for layer in reference if layer.leaf and layer.call == 0]
    kinds = {layer.name: layer.kind for layer in reference_layers}
    pairs = {}
    for layer in port_layers:
        if kinds.get(layer.name) == layer.kind:
            pairs[layer.name] = layer.name
    if [layer.kind for layer in port_layers] == [layer.kind for layer in reference_layers]:
        pairs = {a.name: b.name for a, b in zip(port_layers, reference_layers, strict=True)}
    return settings_notes(port_layers, reference_layers, pairs)


def settings_differences(port: Layer, reference: Layer, probed: bool = False) -> list[str]:
    """Return one line for each setting in which two layers differ.

    Padding is compared as the number of zeros on each side of the recorded input. If the outputs of
    both layers are equal, padding and a pool's window are left out, unless `probed` is True:
    outputs for changed inputs may differ.
    """
    a, b = port.settings, reference.settings
    kinds = {port.kind, reference.kind}
    if len(kinds) == 2 and kinds != {"conv", "dense"}:
        # The name of a user's class is no evidence; its output is compared instead.
        if port.is_own or reference.is_own or kinds in _ALIKE or _are_relu6(port, reference):
            return []
        return [f"it is {port.class_name} in the port, {reference.class_name} in the reference"]
    if not probed and {"kernel_size", "output_size"} & (a.keys() | b.keys()):
        left_out = _not_shown(port, reference)
        a = _without(port, left_out).settings
        b = _without(reference, left_out).settings
    of_border = None
    if kinds == {"conv"} and a.get("pads") != b.get("pads"):
        of_border = kind_of_padding(port, reference)
        if of_border is not None:
            a = _without(dataclasses.replace(port, settings=a), _BORDER).settings
    apart = [
        name for name in a if name in b and name not in _OWN_RULE and not _equal(a[name], b[name])
    ]
    notes = [
        f"{name} {_number(a[name])} in the port, {_number(b[name])} in the reference"
        for name in apart
    ]
    if a and b and ("output_size" in a) != ("output_size" in b):
        notes = [f"it is {port.class_name} in the port, {reference.class_name} in the reference"]
    if of_border:
        notes.append(of_border)
    port_pads = a.get("pads")
    reference_pads = b.get("pads")
    if (
        not notes
        and port_pads is not None
        and reference_pads is not None
        and port_pads != reference_pads
    ):
        mode = a.get("pad_mode", "pad")
        verb = "cuts off" if "transposed" in a else "pads"
        notes.append(
            f"pad_mode {mode} {verb} {_words(port_pads)}, the reference {_words(reference_pads)}"
        )
    if a.get("zeros_after"):
        appended = (
            f"output_padding {a['zeros_after'][0]} appends zeros in the port where torch "
            "computes outputs"
        )
        notes.append(f"{appended}; torch's is padding={a['pads']}")
    if "momentum" in a and "momentum" in b:
        notes += _momentum(1 - a["momentum"], b["momentum"])
    if a.get("activation"):
        notes.append(f"an activation {a['activation']} after it, none in the reference")
    if _same_shape(port, reference) and a.get("batch_first", False) != b.get("batch_first", False):
        notes.append(
            f"batch_first {a.get('batch_first')} in the port, {b.get('batch_first')} in the "
            "reference"
        )
    return notes


def _not_shown(port: Layer, reference: Layer) -> Sequence[str]:
    """Return the names of settings that are not compared, because the outputs do not show a
    difference.
    """
    same = _agree(port.output, reference.output, reference.output_rounding)
    if port.kind not in ("maxpool", "avgpool"):
        # the padding may come from a function before the layer
        return _BORDER if same else ()
    if same or not _same_shape(port, reference):
        return _WINDOW
    reshaped = getattr(port.output, "shape", None) != getattr(reference.output, "shape", None)
    return (
        () if reshaped or _agree(port.input, reference.input, reference.input_rounding) else _WINDOW
    )


def _agree(port: Any, reference: Any, rounding: float) -> bool:
    arrays = port is not None and reference is not None and port.shape == reference.shape
    return arrays and difference("", port, reference, LAYER_TOLERANCE, rounding).verdict != DIFFERS


def _equal(port: Any, reference: Any) -> bool:
    floats = isinstance(port, float) and isinstance(reference, float)
    return math.isclose(port, reference, rel_tol=1e-6) if floats else bool(port == reference)


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _same_shape(port: Layer, reference: Layer) -> bool:
    return (
        port.input is not None
        and reference.input is not None
        and port.input.shape == reference.input.shape
    )


def _are_relu6(*layers: Layer) -> bool:
    return all(
        layer.kind == "relu6" or (layer.settings.get("min"), layer.settings.get("max")) == (0, 6)
        for layer in layers
    )


def _words(pads: Pads) -> str:
    each = [f"{before}/{after}" for before, after in zip(pads[::2], pads[1::2], strict=True)]
    if len(set(each)) == 1:
        return each[0]
    return f"{each[0]} rows, {each[1]} columns" if len(each) == 2 else ", ".join(each)


def _momentum(port: float, reference: float) -> list[str]:
    """Return a line if MindSpore's momentum `port` is not 1 minus torch's momentum `reference`."""
    if math.isclose(port, 1 - reference, abs_tol=1e-6):
        return []
    fault = f"momentum={port:g} in the port"
    if math.isclose(port, reference, abs_tol=1e-6):
        fault = (
            f"momentum inverted: BatchNorm(momentum={port:g}) keeps {port:g} of the old "
            "statistics in MindSpore"
        )
    return [f"{fault}; torch's momentum={reference:g} is momentum={1 - reference:g} in the port"]


def sharing_notes(names: NameMap, port: Iterable[tuple[str, ...]]) -> list[str]:
    """Return a line for each shared array of the reference that the port copies.

    `port` groups names of one array.
    """
    shared = {name: group[0] for group in port for name in group}
    notes = []
    for group in names.tied:
        local = [
            name for name, source in names.parameters.items() if set(source.names) & set(group)
        ]
        copies = list(dict.fromkeys(shared.get(name, name) for name in local))
        if len(copies) > 1:
            notes.append(
                f"{copies[0]}: a copy of {', '.join(copies[1:])} in the port, one array in the "
                "reference "
                f"({' = '.join(group)}); share it"
            )
    return notes


def constant_notes(port: Arrays, reference: Arrays, names: NameMap) -> list[str]:
    """Return one line for each constant of the port that is a buffer of other numbers in the
    reference.

    `port` has the arrays in the port's attributes, and `reference` all arrays of the reference.
    """
    notes = []
    for name, source in attribute_names(port, names).items():
        b = reference.get(source)
        a = port[name]
        if b is None or source in names.paired or a.shape != b.shape:
            continue
        item = difference(name, a, b, LAYER_TOLERANCE)
        if item.verdict == DIFFERS:
            notes.append(f"{name}: a constant, {item.values()}")
    return notes


def attribute_names(port: Iterable[str], names: NameMap) -> dict[str, str]:
    """Map attributes of the port's layers to the same attributes of the reference's layers."""
    sources = {}
    for name in port:
        layer, dot, attribute = name.rpartition(".")
        sources[name] = f"{names.layers.get(layer, layer)}{dot}{attribute}"
    return sources
