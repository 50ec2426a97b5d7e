"""Compare both sides on probes: runs of the net, and of each layer alone, on other inputs than the
batches.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from resnet_fn.config.wording import first_few
from resnet_fn.parity.compare.allowed import (
    KERNEL_FACTOR,
    KERNELS_TOLERANCE,
    OUTPUTS_TOLERANCE,
    UNSEEN_KERNELS_TOLERANCE,
    within,
)
from resnet_fn.parity.compare.layers import compare_layer
from resnet_fn.parity.compare.notes import attempt, settings_differences
from resnet_fn.parity.trace.data import Probe, Trace
from resnet_fn.parity.trace.difference import (
    AGREES,
    DIFFERS,
    UNDECIDED,
    VERDICTS,
    Difference,
    relative_error,
)
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.layout import layout
from resnet_fn.parity.trace.packed import packed_outputs
from resnet_fn.parity.trace.probes import (
    FACTORS,
    IN_TRAINING,
    NET,
    SIZES,
    TOO_LARGE,
    WIDE,
    AskedProbes,
    without_repetition,
)
from resnet_fn.parity.trace.source import ProbeAnswer
from resnet_fn.parity.trace.stages import EVAL_FORWARD, TRAIN_FORWARD, ArrayId
from resnet_fn.parity.trace.tree import paired_outputs

# Layers with inexact kernels on a CPU. tanh is 2e-5 off for inputs times 10, and elu 1e-5 for
# inputs times 0.001.
_KERNELS = ("tanh", "tanhshrink", "elu", "rnn", "gru", "lstm", "rnncell", "grucell", "lstmcell")

_WITH_WINDOWS = ("conv", "transposed conv", "maxpool", "avgpool", "upsample")


@dataclasses.dataclass(frozen=True)
class Finding:
    """A probe (a run on changed inputs) on which the two sides differ, although they agree on the
    batches.
    """

    layer: str  # the name of the port's layer, or `NET`
    probe: str
    difference: Difference | None  # None if the port fails or has other shapes
    words: str  # how they differ


@dataclasses.dataclass(frozen=True)
class Probed:
    """The results of comparing both sides' probes (runs on changed inputs)."""

    findings: Sequence[Finding] = ()
    # the port's layer, or `NET` → the probes that agree
    agreed: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    # known errors of MindSpore's kernels, a line each
    kernels: Sequence[str] = ()
    # probe that compares nothing → the reason
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return one line for each layer with findings, and one for each known error of MindSpore's
        kernels.
        """
        by_layer: dict[str, list[Finding]] = {}
        for finding in self.findings:
            by_layer.setdefault(finding.layer, []).append(finding)
        lines = []
        for layer, findings in by_layer.items():
            probes = ", ".join(without_repetition([finding.probe for finding in findings]))
            what = f"`{layer}` differs" if layer else "the outputs differ"
            difference = findings[0].words
            lines.append(f"on your batches the same; with {probes}: {what}: {difference}")
        return [*lines, *self.kernels]


class ComparedProbe(NamedTuple):
    """The results of both sides on one probe, compared without the reference's rounding."""

    name: str  # the port's layer
    reference_name: str  # the reference's layer
    title: str
    port: Probe
    reference: Probe
    kernels: float  # up to this relative error, MindSpore's tanh and elu may be the cause
    hints: str
    differences: Sequence[Difference] = ()
    words: str = ""  # how the port fails, or its outputs differ in names or shapes


class ComparedProbes(NamedTuple):
    """All probes, compared without the reference's rounding."""

    probes: Sequence[ComparedProbe]
    left_out: Mapping[str, str]  # probe that compares nothing → the reason

    @property
    def asked(self) -> AskedProbes:
        """The probes that differ, of which the reference's rounding decides."""
        asked: dict[str, list[str]] = {}
        for probe in self.probes:
            if any(item.verdict == DIFFERS for item in probe.differences):
                asked.setdefault(probe.reference_name, []).append(probe.title)
        return asked


def compare_probes(
    port: Trace, reference: Trace, layers: Mapping[str, str], forward: str
) -> ComparedProbes:
    """Compare both sides' outputs on the recorded probes (runs on changed inputs).

    `layers` maps the net's layers to the reference's. `forward` is the verdict on the nets'
    outputs on the batches: if these do not agree, the whole nets are not compared on probes. If
    these are undecided, `left_out` names each such probe; if these differ, no line names it.
    """
    port_layers = _first_calls(port)
    reference_layers = _first_calls(reference)
    known = [name for name, layer in port_layers.items() if layer.kind in _KERNELS]
    pairs: list[ComparedProbe] = []
    left_out: dict[str, str] = {}
    for name in port.probes:
        layer = port_layers.get(name)
        counterpart = reference_layers.get(layers.get(name, ""))
        if layer is not None and counterpart is not None and _agree(layer, counterpart):
            pairs += _of_layer(port, reference, layer, counterpart, known)
    of_port = port.probes.get(NET, {})
    of_reference = reference.probes.get(NET, {})
    with_hints = [pair for pair in pairs if pair.hints]
    windows = [pair for pair in with_hints if port_layers[pair.name].kind in _WITH_WINDOWS]
    lines = dict.fromkeys(f"{pair.name}: {pair.hints}" for pair in windows)
    of_layers = first_few(list(lines))
    titles = dict.fromkeys([*of_port, *of_reference])
    for title in titles if forward != DIFFERS else ():
        if forward not in AGREES:
            left_out[title] = "the outputs on the batches are undecided"
        elif title.endswith(IN_TRAINING) and (port.random_train or reference.random_train):
            left_out[title] = "a net draws random numbers in training mode"
        elif title in of_port and title in of_reference:
            # other sizes show differences of windows
            hints = of_layers if title in SIZES or title.startswith(WIDE) else ""
            sides = of_port[title], of_reference[title]
            of_net = ComparedProbe(NET, NET, title, *sides, _of_kernels(port, title), hints)
            pairs.append(of_net)
        else:
            left_out[title] = "one side has no record of it"
    compared = []
    for pair in pairs:
        why = _nothing_to_compare(pair)
        if not why:
            compared.append(_compared(pair))
        elif pair.name == NET:
            left_out[pair.title] = why
    return ComparedProbes(compared, left_out)


def _first_calls(side: Trace) -> dict[str, Layer]:
    return {layer.name: layer for layer in side.layers["eval"] if not layer.call}


def _agree(port: Layer, reference: Layer) -> bool:
    """Return whether two layers agree on equal inputs of the batch: probes need such layers."""
    if port.output is None or reference.output is None:
        return False
    if port.input is None or reference.input is None:
        return False
    shown = compare_layer("eval", port, reference)
    of_input = shown.input.verdict if shown.input else DIFFERS
    if {shown.output.verdict, of_input} & {DIFFERS, UNDECIDED}:
        return False
    return port.output.size == reference.output.size


def _of_layer(
    port: Trace, reference: Trace, port_layer: Layer, reference_layer: Layer, known: Sequence[str]
) -> Iterator[ComparedProbe]:
    """Yield the probes that both sides have of a pair of layers.

    `known` names the port's layers with inexact kernels.
    """
    assert port_layer.input is not None
    assert reference_layer.input is not None
    settings = (
        attempt(settings_differences, port_layer, reference_layer, True)
        if port_layer.leaf and reference_layer.leaf
        else []
    )
    prefix = f"{port_layer.name}."
    has_kernels = any(f"{name}.".startswith(prefix) for name in known)
    hints = "; ".join(settings)
    have_one_shape = port_layer.input.shape == reference_layer.input.shape
    answers = port.probes[port_layer.name]
    for title, probe in reference.probes.get(reference_layer.name, {}).items():
        if title in answers and (title in FACTORS or have_one_shape):
            sides = answers[title], probe
            unseen = UNSEEN_KERNELS_TOLERANCE if port_layer.is_own and title in FACTORS else 0.0
            kernels = KERNELS_TOLERANCE if has_kernels else unseen
            yield ComparedProbe(
                port_layer.name, reference_layer.name, title, *sides, kernels, hints
            )


def _of_kernels(port: Trace, title: str) -> float:
    """Return up to which relative error of the net kernels may be the cause on a probe.

    On scaled inputs they may be further off than on the batches, and the net's outputs further than
    the kernels. On others, what they change on the batches, where as much passes, shows what they
    can change.
    """
    if title in FACTORS:
        return KERNEL_FACTOR * UNSEEN_KERNELS_TOLERANCE
    stage = TRAIN_FORWARD if title.endswith(IN_TRAINING) else EVAL_FORWARD
    measured = max(port.kernels.get(stage, {}).values(), default=0.0)
    return min(KERNEL_FACTOR * measured, UNSEEN_KERNELS_TOLERANCE)


def _nothing_to_compare(pair: ComparedProbe) -> str:
    """Return why a probe compares nothing, or an empty string."""
    port, reference = pair.port, pair.reference
    if reference.error:
        return "the reference rejects it"
    a = port.further
    b = reference.further
    if len(a) != len(b) or not np.allclose(a, b, rtol=1e-3):
        return "the two sides had different inputs"
    outputs = reference.outputs.values()
    finite = all(np.isfinite(value).all() for value in outputs)
    return "" if finite and port.error != TOO_LARGE else "the reference is not finite"


def _compared(pair: ComparedProbe) -> ComparedProbe:
    """Return a probe with its differences, and a text if the port fails or its outputs differ in
    names or shapes.
    """
    port, reference = pair.port, pair.reference
    if port.error:
        return pair._replace(words=f"it fails in the port ({port.error})")
    outputs = packed_outputs(port.outputs, reference.outputs)
    names = paired_outputs(outputs, reference.outputs)
    if names is not None:
        items = []
        for name, value in reference.outputs.items():
            if name not in names:  # a text
                continue
            port_value = outputs[names[name]]
            items.append(_difference(name, port_value, value))
        return pair._replace(differences=items)
    if not pair.name:
        return pair._replace(words="its outputs have other names or shapes in the port")
    [x] = port.outputs.values()
    [(name, y)] = reference.outputs.items()
    shapes = f"{list(x.shape)} in the port, {list(y.shape)} in the reference"
    if x.size != y.size:
        return pair._replace(words=shapes)
    move = layout(x, y)
    item = _difference(name, x, move(y))
    return pair._replace(differences=[item], words=shapes)


def _difference(name: str, port: np.ndarray, reference: np.ndarray) -> Difference:
    """Return the difference of two arrays.

    If the arrays agree, only the relative error is computed.
    """
    error = relative_error(port, reference)
    bound = within(OUTPUTS_TOLERANCE)
    if error <= OUTPUTS_TOLERANCE:
        return Difference(
            ArrayId(name), 0.0, error, 1.0, 0.0, 0.0, (), 0.0, OUTPUTS_TOLERANCE, bound.why
        )
    return bound.compare(name, port, reference)


def judge_probes(compared: ComparedProbes, answer: ProbeAnswer) -> Probed:
    """Decide about each probe: an agreement, a known error of a kernel, or a finding.

    `answer` has the reference's rounding of the probes that were asked for. Without it, the
    tolerance alone decides. Undecided results are left out, those of the whole net by name.
    """
    agreed: dict[str, list[str]] = {}
    findings: list[Finding] = []
    kernels: list[str] = []
    left_out = {**compared.left_out}
    if answer.failed:
        left_out["the rounding of probes"] = f"not measured ({answer.failed})"
    for pair in compared.probes:
        of_layer = answer.rounding.get(pair.reference_name, {})
        errors = of_layer.get(pair.title) or pair.reference.rounding
        items = []
        for difference in pair.differences:
            error = errors.get(difference.name, 0.0)
            items.append(dataclasses.replace(difference, rounding=error))
        item = max(items, key=_severity, default=None)
        if item and item.verdict == UNDECIDED:
            if pair.name == NET:
                left_out[pair.title] = f"the reference's rounding is {item.rounding:.2g}"
            continue
        if item and item.verdict in AGREES:
            agreed.setdefault(pair.name, []).append(pair.title)
        elif item and item.relative <= pair.kernels:
            message = (
                f"a difference of {item.relative:.1e} with {pair.title}, which MindSpore's kernels "
                "of tanh and elu can cause"
            )
            kernels.append(f"{pair.name or 'the net'}: {message}")
        else:
            message = item.values() if item else pair.words
            message = f"{message}; {pair.hints}" if pair.hints else message
            findings.append(Finding(pair.name, pair.title, item, message))
    outermost = []
    for finding in findings:
        inside = f"{finding.layer}."
        same = [other for other in findings if other.probe == finding.probe]
        if not any(other.layer.startswith(inside) for other in same):
            outermost.append(finding)
    return Probed(outermost, agreed, kernels, left_out)


def _severity(item: Difference) -> tuple[int, float]:
    return VERDICTS.index(item.verdict), item.relative
