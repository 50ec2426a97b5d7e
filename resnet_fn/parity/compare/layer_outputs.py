"""The stages that show the outputs of all paired layers of one mode."""

import dataclasses
import math

from resnet_fn.config.hints import few
from resnet_fn.parity.compare.rule import Rule
from resnet_fn.parity.compare.sides import Sides
from resnet_fn.parity.compare.stage import Absent, Stage, with_note, without_undecided
from resnet_fn.parity.trace.difference import DIFFERS, OTHER_SHAPE, TIES, UNDECIDED, Difference


@dataclasses.dataclass(frozen=True)
class LayerOutputs(Rule):
    """Shows how the outputs of layers differ (`layers.compare_layers`)."""

    mode: str = ""  # of the layers: "eval", "train", or "dropout" (with masks)
    of_net: Rule = dataclasses.field(kw_only=True)  # compares the net's outputs in this mode

    def stage(self, sides: Sides) -> Stage | None:
        """Return the comparison, or None if no layers or outputs of the net are compared."""
        layers = [one for one in sides.layers if one.mode == self.mode]
        net = self.of_net.stage(sides) if layers else None
        if net is None:
            return None
        if net.verdict == DIFFERS:
            return self._decided([one.output for one in layers])
        # The net's outputs agree: a layer that runs on other samples, such as an expert, or whose
        # shape depends on rounding, cannot be compared.
        other = [one for one in layers if one.input is not None and one.input.why == OTHER_SHAPE]
        other += [one for one in layers if math.isinf(one.output.rounding)]
        stage = self._decided([one.output for one in layers if one not in other])
        if names := list(dict.fromkeys(one.name for one in other)):
            stage = with_note(stage, f"undecided, since shapes differ: {few(names)}")
        if not any(item.why == TIES for item in net.differences):
            return stage
        alike = [item for item in stage.differences if item.verdict != DIFFERS]
        changed = len(stage.differences) - len(alike)
        note = f"without {changed} layers that ties change" if changed else ""
        return with_note(dataclasses.replace(stage, differences=alike), note)

    def _decided(self, outputs: list[Difference]) -> Stage:
        """Return the stage without undecided layers: layers only explain."""
        stage = without_undecided(Stage(self.id, outputs, absent=Absent.NOT_IN_TASK))
        clear = [one for one in stage.differences if one.verdict != UNDECIDED]
        return dataclasses.replace(stage, differences=clear)
