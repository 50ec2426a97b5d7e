"""The stages that show the outputs of all paired layers of one mode."""

import dataclasses

from resnet_fn.parity.compare.rule import Rule
from resnet_fn.parity.compare.sides import Sides
from resnet_fn.parity.compare.stage import Stage, with_note, without_undecided
from resnet_fn.parity.trace.difference import DIFFERS, TIES


@dataclasses.dataclass(frozen=True)
class LayerOutputs(Rule):
    """Shows how the outputs of layers differ (`layers.compare_layers`)."""

    mode: str = ""  # of the layers: "eval", "train", or "dropout" (with masks)
    of_net: Rule = dataclasses.field(kw_only=True)  # compares the net's outputs in this mode

    def stage(self, sides: Sides) -> Stage | None:
        """Return the comparison, or None if no layers or outputs of the net are compared."""
        outputs = [one.output for one in sides.layers if one.mode == self.mode]
        net = self.of_net.stage(sides) if outputs else None
        if net is None:
            return None
        stage = without_undecided(Stage(self.id, outputs))
        if net.verdict == DIFFERS or not any(item.why == TIES for item in net.differences):
            return stage
        alike = [item for item in stage.differences if item.verdict != DIFFERS]
        changed = len(stage.differences) - len(alike)
        note = f"without {changed} layers that ties change" if changed else ""
        return with_note(dataclasses.replace(stage, differences=alike), note)
