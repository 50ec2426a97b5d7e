"""One net computed in two ways: the traces of both ways in, the verdict of the way out."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from resnet_fn.parity.compare.allowed import NO_TOLERANCE, within
from resnet_fn.parity.compare.layers import LayerDifference
from resnet_fn.parity.compare.rules import RULES
from resnet_fn.parity.compare.sides import both_sides
from resnet_fn.parity.compare.stage import SKIPPED, Stage
from resnet_fn.parity.pair.name_map import NameMap, whole_array
from resnet_fn.parity.trace.data import Trace
from resnet_fn.parity.trace.difference import (
    DIFFERS,
    UNDECIDED,
    VERDICTS,
    Difference,
    relative_error,
)
from resnet_fn.parity.trace.stages import FIRST, StageId

# what is expected of a way
BITS, TO_ROUNDING, BY_PRECISION = "equal bits", "to rounding", "by precision"


class NotApplicableError(Exception):
    """Raised if a way shows nothing of this net or these inputs. Its text has the reason."""


@dataclasses.dataclass(frozen=True)
class Way:
    """A way to compute what a net computes in the plain way, too."""

    name: str
    state: str  # of the net, while both ways are computed
    expected: str  # BITS, TO_ROUNDING or BY_PRECISION
    port: str  # the way, as in "0.12 compiled"
    reference: str  # the plain way


@dataclasses.dataclass(frozen=True)
class WayResult:
    """The comparison of a way with the plain way."""

    way: Way
    stages: Sequence[Stage] = ()
    layers: Sequence[LayerDifference] = ()  # in the order of execution
    skipped: str = ""  # why the way shows nothing; empty otherwise
    undecided: str = ""  # why the way could not be computed; empty otherwise
    notes: Sequence[str] = ()

    @property
    def verdict(self) -> str:
        """The worst verdict of all stages, or "skipped" if there is none."""
        if self.undecided:
            return UNDECIDED
        verdicts = [stage.verdict for stage in self.stages if stage.verdict in VERDICTS]
        return max(verdicts, key=VERDICTS.index, default=SKIPPED)

    @property
    def words(self) -> str:
        """The verdict in words: of a precision, whether it explains what differs."""
        if self.skipped:
            return self.skipped.partition(":")[0]
        if self.way.expected != BY_PRECISION or self.verdict == UNDECIDED:
            return self.verdict
        return "explained: no" if self.verdict == DIFFERS else "explained: yes"

    @property
    def worst(self) -> Difference | None:
        """The worst difference of all stages, or None."""
        worst = [stage.worst for stage in self.stages if stage.worst]
        return max(
            worst, key=lambda item: (VERDICTS.index(item.verdict), item.excess), default=None
        )

    @property
    def compared(self) -> int:
        """The number of arrays that are compared."""
        return sum(len(stage.differences) for stage in self.stages)

    @property
    def first_stage(self) -> Stage | None:
        """The first stage that differs."""
        return next((stage for stage in self.stages if stage.verdict == DIFFERS), None)

    @property
    def first_layer(self) -> LayerDifference | None:
        """The first layer whose output differs."""
        return next((layer for layer in self.layers if layer.output.verdict == DIFFERS), None)


def compared(
    way: Way, port: Trace, reference: Trace, stages: Collection[StageId], notes: Sequence[str] = ()
) -> WayResult:
    """Compare the traces of two ways in these stages, and on further batches if there are any.

    The rounding is that of the reference's trace. A way that expects equal bits has none.
    """
    exact = way.expected == BITS
    sides = both_sides(port, reference, _same_names(port, reference), initialisation=False)
    if exact:
        sides = dataclasses.replace(sides, layers=_bit_by_bit(port, reference))
    results = []
    for rule in RULES:
        is_further = rule.id.batch != FIRST
        if rule.id.of_first_batch not in stages or rule.id.masked or rule.id.drawn:
            continue
        if is_further and not reference.run.later:
            continue
        if exact:
            rule = dataclasses.replace(rule, tolerance=NO_TOLERANCE)
        if stage := rule.stage(sides):
            results.append(stage)
    return WayResult(way, results, sides.layers, notes=notes)


def _same_names(port: Trace, reference: Trace) -> NameMap:
    """Return the pairs of one net's arrays and layers: all have the same names on both sides."""
    arrays = {name: whole_array(name) for name in port.run.start if name in reference.run.start}
    layers = {layer.name: layer.name for executions in port.layers.values() for layer in executions}
    return NameMap("names", arrays, layers, ())


def _bit_by_bit(port: Trace, reference: Trace) -> list[LayerDifference]:
    """Return the layers of both traces, whose outputs must be equal."""
    compared: list[LayerDifference] = []
    for mode, layers in port.layers.items():
        others = {execution.title: execution.output for execution in reference.layers.get(mode, ())}
        for layer in layers:
            other = others.get(layer.title)
            if layer.output is None or other is None or layer.output.shape != other.shape:
                continue
            output = within(NO_TOLERANCE).compare(layer.title, layer.output, other)
            compared.append(LayerDifference(mode, layer.title, layer.title, output, None, ()))
    return compared


def errors_of(exact: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, float]:
    """Return the relative errors of the arrays that both have in one shape."""
    errors = {}
    for name, array in exact.items():
        of_other = other.get(name)
        if array is not None and of_other is not None and array.shape == of_other.shape:
            errors[name] = relative_error(of_other, array)
    return errors
