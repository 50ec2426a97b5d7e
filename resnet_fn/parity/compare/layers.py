"""Compare the outputs and inputs of both nets, layer by layer."""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from resnet_fn.parity.compare.allowed import OUTPUTS_TOLERANCE, kernel_rounding, larger_bound
from resnet_fn.parity.compare.measures import other_shape_difference
from resnet_fn.parity.compare.notes import attempt, settings_differences
from resnet_fn.parity.trace import reasons
from resnet_fn.parity.trace.difference import (
    AGREES,
    DIFFERS,
    UNDECIDED,
    Difference,
)
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.layout import layout
from resnet_fn.parity.trace.stages import ArrayId

_NEAR = 4  # the activation after a layer is searched for in the next three layers


@dataclasses.dataclass(frozen=True)
class LayerDifference:
    """The difference between both nets in one execution of a layer."""

    mode: str  # "eval", "train", or "dropout": training mode with masks
    # name, reference: the titles of the port's layer and of the reference's, for example "relu",
    # and "relu (2)" in call 2
    name: str
    reference: str
    output: Difference  # how its outputs differ
    input: Difference | None  # how its inputs differ; None if they are not compared
    hints: tuple[str, ...]  # settings that differ, and whether the input differs


def compare_layers(
    port: Mapping[str, Sequence[Layer]],
    reference: Mapping[str, Sequence[Layer]],
    layers: Mapping[str, str],
) -> list[LayerDifference]:
    """Compare paired layers, mode by mode.

    `layers` maps paths of the port's layers to paths in the reference.
    """
    compared: list[LayerDifference] = []
    for mode, executions in port.items():
        if mode not in reference:
            continue
        positions = {
            (layer.name, layer.call): position for position, layer in enumerate(reference[mode])
        }
        for index, layer in enumerate(executions):
            position = positions.get((layers.get(layer.name, ""), layer.call))
            reference_layer = None if position is None else reference[mode][position]
            if (
                position is None
                or reference_layer is None
                or layer.output is None
                or reference_layer.output is None
            ):
                continue
            # one net may drop before a ReLU, the other after it
            if mode == "dropout" and not layer.parameters:
                continue
            if (
                layer.input is None or reference_layer.input is None
            ) and layer.output.size != reference_layer.output.size:
                continue  # a layer that takes no input and returns a table
            item = compare_layer(mode, layer, reference_layer)
            if item.output.verdict == DIFFERS:
                after = _following(executions, index)
                after_reference = _following(reference[mode], position)
                item = (
                    _with_what_follows(mode, (layer, after), (reference_layer, after_reference))
                    or item
                )
            compared.append(item)
    return compared


def _following(executions: Sequence[Layer], index: int) -> list[Layer]:
    """Return the next layers after one that are not inside of it."""
    inside = f"{executions[index].name}."
    outside = (layer for layer in executions[index + 1 :] if not layer.name.startswith(inside))
    return list(itertools.islice(outside, _NEAR - 1))


def _with_what_follows(
    mode: str, port: tuple[Layer, Sequence[Layer]], reference: tuple[Layer, Sequence[Layer]]
) -> LayerDifference | None:
    """Return the comparison of one layer with the activation after the other layer, or with what a
    layer after the other layer is given, if they agree, else one that is undecided, else None.
    """
    undecided = None
    for further in (_with_next, _with_input_of_next):
        pairs = [(joined, reference[0]) for joined in further(*port)]
        pairs += [(port[0], joined) for joined in further(*reference)]
        for pair in pairs:
            item = compare_layer(mode, *pair)
            if item.output.verdict in AGREES:
                return item
            # what a later layer is given may have nothing to do with this layer
            if item.output.verdict == UNDECIDED and further is _with_next:
                undecided = undecided or item
    return undecided


def _with_next(layer: Layer, others: Sequence[Layer]) -> Iterator[Layer]:
    """For activations in `others` that take `layer`'s output, yield a copy of `layer` with the
    activation's output.
    """
    for other in others:
        if layer.output is None or other.input is None or not other.leaf or other.parameters:
            continue
        if np.array_equal(other.input, layer.output):
            yield dataclasses.replace(
                layer, output=other.output, output_rounding=other.output_rounding
            )


def _with_input_of_next(layer: Layer, others: Sequence[Layer]) -> Iterator[Layer]:
    """Yield copies of `layer` with the inputs of `others` as output: the code after a layer may do
    what the other net does inside of it.
    """
    for other in others:
        if other.input is not None:
            yield dataclasses.replace(layer, output=other.input)


def compare_layer(mode: str, port: Layer, reference: Layer) -> LayerDifference:
    """Compare one execution of a layer in both nets. Both executions must have outputs."""
    assert port.output is not None
    assert reference.output is not None
    of_port = _at_valid_steps(port.output, reference)
    port_output, reference_output = _repeated(of_port, _laid_out_as(of_port, reference.output))
    errors = reference.output_rounding, port.output_rounding
    output = _arrays(port.title, port_output, reference_output, *errors)
    input_ = None
    # A port's last projection may be paired with a whole attention, which has another input.
    if (
        port.input is not None
        and reference.input is not None
        and {port.kind, reference.kind} != {"attention", "dense"}
    ):
        input_ = _arrays(
            port.title,
            port.input,
            _laid_out_as(port.input, reference.input),
            reference.input_rounding,
            port.input_rounding,
        )
    hints: list[str] = []
    if output.verdict == DIFFERS:
        hints += attempt(settings_differences, port, reference)
        if input_ is not None and input_.verdict == DIFFERS:
            hints.append(
                "its input differs already and no earlier layer's output does: look at what "
                "happens between the "
                "layers (a function, a sum, a concatenation)"
            )
        if port_output.shape != reference_output.shape:
            hints.append(
                f"its output is {port.output.shape} in the port, {reference.output.shape} in the "
                "reference"
            )
    return LayerDifference(mode, port.title, reference.title, output, input_, tuple(hints))


def _at_valid_steps(port: np.ndarray, reference: Layer) -> np.ndarray:
    """Return a port's padded sequences [samples, steps, …] or [steps, samples, …], with zeros where
    the reference's packed sequences have no step.
    """
    valid, reference_output = reference.valid, reference.output
    if valid is None or reference_output is None or port.shape[2:] != reference_output.shape[2:]:
        return port
    samples, steps = valid.shape
    kept = []
    for batch_first in (port, port.swapaxes(0, 1)):
        if batch_first.shape[0] == samples and batch_first.shape[1] >= steps:
            shown = batch_first[:, :steps]
            mask = valid.reshape(samples, steps, *(1,) * (shown.ndim - 2))
            kept.append(np.where(mask, shown, 0.0))
    return min(
        kept, key=lambda array: float(np.linalg.norm(array - reference_output)), default=port
    )


def _laid_out_as(port: Any, reference: Any) -> Any:
    return reference if port is None or reference is None else layout(port, reference)(reference)


def _repeated(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return both arrays.

    An array with one sample or no sample axis is repeated for every sample.
    """
    for shape in (a.shape, b.shape):
        if {a.shape, b.shape} in ({shape, shape[1:]}, {shape, (1, *shape[1:])}) and len(shape) > 1:
            return np.broadcast_to(a, shape), np.broadcast_to(b, shape)
    return a, b


def _arrays(name: str, a: np.ndarray, b: np.ndarray, rounding: float, kernels: float) -> Difference:
    if a.shape == b.shape:
        roundings = {reasons.FLOAT64: rounding, reasons.KERNELS: kernel_rounding(kernels)}
        return larger_bound(OUTPUTS_TOLERANCE, roundings).compare(name, a, b)
    infinite = rounding if math.isinf(rounding) else 0.0
    return other_shape_difference(ArrayId(name), a, b, infinite)
