"""The stages that show the outputs of all paired layers of one mode."""

import dataclasses

from resnet_fn.parity.compare.rule import Rule
from resnet_fn.parity.compare.sides import Sides
from resnet_fn.parity.compare.stage import Absent, Stage, without_undecided
from resnet_fn.parity.trace.difference import UNDECIDED


@dataclasses.dataclass(frozen=True)
class LayerOutputs(Rule):
    """Shows how the outputs of layers differ (`layers.compare_layers`)."""

    mode: str = ""  # of the layers: "eval", "train", or "dropout" (with masks)
    of_net: Rule = dataclasses.field(kw_only=True)  # compares the net's outputs in this mode

    def stage(self, sides: Sides) -> Stage | None:
        """Return the comparison, or None if no layers or outputs of the net are compared."""
        outputs = [one.output for one in sides.layers if one.mode == self.mode]
        if not outputs or self.of_net.stage(sides) is None:
            return None
        # layers only explain: an undecided layer makes no stage undecided
        stage = without_undecided(Stage(self.id, outputs, absent=Absent.NOT_IN_TASK))
        clear = [one for one in stage.differences if one.verdict != UNDECIDED]
        return dataclasses.replace(stage, differences=clear)
