"""The stages that show the outputs of all paired layers of one mode."""

import dataclasses
import math

from resnet_fn.config.wording import first_few
from resnet_fn.parity.compare.layers import LayerDifference
from resnet_fn.parity.compare.rule import Rule, TraceRule
from resnet_fn.parity.compare.sides import Sides
from resnet_fn.parity.compare.stage import Absent, Stage, with_note, without_undecided
from resnet_fn.parity.compare.ties import by_either_decision
from resnet_fn.parity.trace import reasons
from resnet_fn.parity.trace.difference import DIFFERS, UNDECIDED, Difference


@dataclasses.dataclass(frozen=True)
class LayerOutputs(TraceRule):
    """Shows how the outputs of layers differ (`layers.compare_layers`)."""

    trains: bool = True
    mode: str = ""  # of the layers: "eval", "train", or "dropout" (with masks)
    of_net: Rule = dataclasses.field(kw_only=True)  # compares the net's outputs in this mode

    def stage(self, sides: Sides) -> Stage | None:
        """Return the comparison, or None if no layers or outputs of the net are compared."""
        layers = [layer for layer in sides.layers if layer.mode == self.mode]
        net = by_either_decision(self.of_net.stage, sides) if layers else None
        if net is None:
            return None
        outputs, others = [], []
        for layer in layers:
            # Unless the net's outputs differ, such a layer is no fault.
            if net.verdict != DIFFERS and _has_other_shape(layer):
                others.append(layer.name)
            else:
                outputs.append(layer.output)
        stage = self._decided(outputs)
        if others:
            names = first_few(list(dict.fromkeys(others)))
            stage = with_note(stage, f"undecided, since shapes differ: {names}")
        tied = any(item.why == reasons.TIES for item in net.differences)
        if sides.otherwise is not None:  # of integers, ties are excused one by one, or too many
            tied |= any(_has_tied_integers(item) for item in net.differences)
        return _without_tied(stage) if tied else stage

    def _decided(self, outputs: list[Difference]) -> Stage:
        """Return the stage without undecided layers: layers only explain."""
        stage = without_undecided(Stage(self.id, outputs, absent=Absent.NOT_IN_TASK))
        # those without a finite number are left
        undecided = [item for item in stage.differences if item.verdict == UNDECIDED]
        clear = [item for item in stage.differences if item.verdict != UNDECIDED]
        return dataclasses.replace(stage, differences=clear, left_out=[*stage.left_out, *undecided])


def _has_other_shape(layer: LayerDifference) -> bool:
    """Return whether a layer runs on other samples, as an expert may, or rounding decides about its
    shape.
    """
    if math.isinf(layer.output.rounding):
        return True
    return layer.input is not None and layer.input.why == reasons.OTHER_SHAPE


def _has_tied_integers(item: Difference) -> bool:
    """Return whether integers of an output are excused, or whether too many depend on rounding."""
    return item.why.endswith(reasons.EXCUSED) or (item.verdict == UNDECIDED and bool(item.unsure))


def _without_tied(stage: Stage) -> Stage:
    """Return the stage without the layers that differ, where ties change the net's outputs."""
    alike = []
    for item in stage.differences:
        if item.verdict != DIFFERS:
            alike.append(item)
    changed = len(stage.differences) - len(alike)
    if not changed:
        return stage
    stage = dataclasses.replace(stage, differences=alike)
    return with_note(stage, f"without {changed} layers that ties change")
