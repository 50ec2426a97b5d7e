"""Compare both sides on probes: runs of the net, and of each layer alone, on other inputs than the
batches."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

import numpy as np

from resnet_fn.config.hints import few, first_line
from resnet_fn.parity.compare.layers import compare_layer
from resnet_fn.parity.compare.notes import attempt, settings_differences
from resnet_fn.parity.trace.data import Probe, Trace
from resnet_fn.parity.trace.difference import (
    DIFFERS,
    UNDECIDED,
    Difference,
    difference,
    relative_error,
)
from resnet_fn.parity.trace.layer import TOLERANCE
from resnet_fn.parity.trace.layout import layout
from resnet_fn.parity.trace.probes import FACTORS, NET, TOO_LARGE
from resnet_fn.parity.trace.tree import paired_outputs

# Layers with inexact kernels on a CPU. tanh is 2e-5 off for inputs times 10, and elu 1e-5 for
# inputs times 0.001.
_KERNELS = ("tanh", "tanhshrink", "elu", "rnn", "gru", "lstm", "rnncell", "grucell", "lstmcell")

_OF_KERNELS = 1e-3  # relative errors up to this are blamed on these kernels

# the same limit if such a function may run outside of layers; only for probes that scale numbers
_UNSEEN = 5e-5

_WITH_WINDOWS = ("conv", "transposed conv", "maxpool", "avgpool", "upsample")


@dataclasses.dataclass(frozen=True)
class Finding:
    """A probe (a run on changed inputs) on which the two sides differ, although they agree on the
    batches.
    """

    layer: str  # the name of our layer, or `NET`
    probe: str
    difference: Difference | None  # None if our side fails or has other shapes
    words: str  # how they differ


@dataclasses.dataclass
class Probed:
    """The results of comparing both sides' probes (runs on changed inputs)."""

    findings: list[Finding] = field(default_factory=list)
    # our layer, or `NET` → the probes that agree
    agreed: dict[str, list[str]] = field(default_factory=dict)
    # known errors of MindSpore's kernels, a line each
    kernels: list[str] = field(default_factory=list)
    # probe that compares nothing → the reason
    left_out: dict[str, str] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return one line for each layer with findings, and one for each known error of MindSpore's
        kernels.
        """
        by_layer: dict[str, list[Finding]] = {}
        for one in self.findings:
            by_layer.setdefault(one.layer, []).append(one)
        return [
            f"on your batches the same; with {', '.join(one.probe for one in pairs)}: "
            f"{f'`{layer}` differs' if layer else 'the outputs differ'}: {pairs[0].words}"
            for layer, pairs in by_layer.items()
        ] + self.kernels


def compare_probes(ours: Trace, theirs: Trace, layers: Mapping[str, str], forward: bool) -> Probed:
    """Compare both sides' outputs on the recorded probes (runs on changed inputs).

    `layers` maps the net's layers to the reference's. `forward` is True if the nets' outputs agree
    on the batches.
    """
    probed, pairs = Probed(), list[_Pair]()
    a, b = (
        {one.name: one for one in side.layers["eval"] if not one.call} for side in (ours, theirs)
    )
    known = [name for name, one in a.items() if one.kind in _KERNELS]
    for name, answers in ours.probes.items():
        mine, other = a.get(name), b.get(layers.get(name, ""))
        if mine is None or other is None or mine.output is None or other.output is None:
            continue
        shown = compare_layer("eval", mine, other)
        differs = {DIFFERS, UNDECIDED} & {
            shown.output.verdict,
            shown.input.verdict if shown.input else DIFFERS,
        }
        if (
            differs
            or mine.input is None
            or other.input is None
            or mine.output.size != other.output.size
        ):
            continue  # probes need layers that agree on equal inputs
        hints = (
            "; ".join(attempt(settings_differences, mine, other, True))
            if mine.leaf and other.leaf
            else ""
        )
        inside = any(f"{one}.".startswith(f"{name}.") for one in known)
        kernels = _OF_KERNELS if inside else _UNSEEN if mine.is_own else 0.0
        for title, probe in theirs.probes.get(other.name, {}).items():
            if title in answers and (title in FACTORS or mine.input.shape == other.input.shape):
                pairs.append(_Pair(name, other.name, title, answers[title], probe, kernels, hints))
    net = ours.probes.get(NET, {}), theirs.probes.get(NET, {})
    windows = [one for one in pairs if one.hints and a[one.name].kind in _WITH_WINDOWS]
    of_layers = few(list(dict.fromkeys(f"{one.name}: {one.hints}" for one in windows)))
    for title in dict.fromkeys([*net[0], *net[1]]) if forward else ():
        if title in net[0] and title in net[1]:
            kernels = _OF_KERNELS if known else _UNSEEN
            hints = of_layers if "sizes" in title else ""  # other sizes show differences of windows
            pairs.append(_Pair(NET, NET, title, net[0][title], net[1][title], kernels, hints))
        else:
            probed.left_out[title] = "one side has no record of it"
    compared = [(pair, one) for pair in pairs if (one := _compared(probed, pair)) is not None]
    asked: dict[str, list[str]] = {}
    for pair, (items, _) in compared:
        if any(item.verdict == DIFFERS for item in items):
            asked.setdefault(pair.other, []).append(pair.title)
    if asked and theirs.measure_probes:
        try:
            theirs.measure_probes(asked)
        except Exception as error:  # then the tolerance alone decides
            probed.left_out["the rounding of probes"] = (
                f"not measured ({type(error).__name__}: {first_line(error)})"
            )
    for pair, (items, words) in compared:
        _judge(probed, pair, items, words)
    probed.findings = [
        one
        for one in probed.findings
        if not any(
            one.probe == other.probe and other.layer.startswith(f"{one.layer}.")
            for other in probed.findings
        )
    ]
    return probed


class _Pair(NamedTuple):
    """The results of both sides on one probe."""

    name: str  # our layer
    other: str  # the reference's layer
    title: str
    ours: Probe
    theirs: Probe
    kernels: float  # up to this relative error, MindSpore's tanh and elu may be the cause
    hints: str


def _compared(probed: Probed, pair: _Pair) -> tuple[list[Difference], str] | None:
    """Return a probe's differences, and a text if our side fails or its outputs differ in names or
    shapes, or None.
    """
    _, _, title, ours, theirs, _, _ = pair
    finite = all(np.isfinite(value).all() for value in theirs.outputs.values())
    apart = len(ours.further) != len(theirs.further) or not np.allclose(
        ours.further, theirs.further, rtol=1e-3
    )
    if theirs.error or not finite or apart or ours.error == TOO_LARGE:
        if not pair.name:
            why = "the two sides had different inputs" if apart else "the reference is not finite"
            probed.left_out[title] = "the reference rejects it" if theirs.error else why
        return None
    if ours.error:
        return [], f"it fails here ({ours.error})"
    names = paired_outputs(ours.outputs, theirs.outputs)
    if names is not None:
        pairs = [(name, ours.outputs[names[name]], value) for name, value in theirs.outputs.items()]
        return [_difference(name, x, y) for name, x, y in pairs], ""
    if not pair.name:
        return [], "its outputs have other names or shapes here"
    [x], [(name, y)] = ours.outputs.values(), theirs.outputs.items()
    words = f"{list(x.shape)} here, {list(y.shape)} in the reference"
    return [_difference(name, x, layout(x, y)(y))] if x.size == y.size else [], words


def _difference(name: str, ours: np.ndarray, theirs: np.ndarray) -> Difference:
    """Return the difference of two arrays.

    If the arrays agree, only the relative error is computed.
    """
    error = relative_error(ours, theirs)
    if error <= TOLERANCE:
        return Difference(name, 0.0, error, 1.0, 0.0, 0.0, (), 0.0, TOLERANCE)
    return difference(name, ours, theirs, TOLERANCE)


def _judge(probed: Probed, pair: _Pair, items: Sequence[Difference], words: str) -> None:
    """Add a probe's result to `probed`: an agreement, a known kernel error or a finding.

    Skip undecided results.
    """
    name, _, title, _, theirs, kernels, hints = pair
    measured = [
        dataclasses.replace(one, rounding=theirs.rounding.get(one.name, 0.0)) for one in items
    ]
    item = max(measured, key=lambda one: (one.verdict == DIFFERS, one.relative), default=None)
    if item and item.verdict == UNDECIDED:
        return
    if item and item.verdict != DIFFERS:
        probed.agreed.setdefault(name, []).append(title)
    elif item and item.relative <= kernels and (kernels > _UNSEEN or title in FACTORS):
        words = (
            f"a difference of {item.relative:.1e} with {title}, which MindSpore's kernels of "
            "tanh and elu can cause"
        )
        probed.kernels.append(f"{name or 'the net'}: {words}")
    else:
        words = item.values() if item else words
        probed.findings.append(Finding(name, title, item, f"{words}; {hints}" if hints else words))
