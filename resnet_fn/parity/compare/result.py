"""The result of a comparison.

It differs if a stage differs. Otherwise it is undecided if a stage is undecided (`stage` has what
makes a stage undecided), and else both sides agree.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from resnet_fn.parity.compare.coverage import Coverage
from resnet_fn.parity.compare.layers import LayerDifference
from resnet_fn.parity.compare.probes import Probed
from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.pair.name_map import NameMap
from resnet_fn.parity.trace.data import Rounding
from resnet_fn.parity.trace.difference import DIFFERS, UNDECIDED, Difference
from resnet_fn.parity.trace.stages import GRADIENTS, STAGES_OF_LAYERS


class Seen(NamedTuple):
    """What a small trace shows."""

    arrays: int  # how many arrays were compared by numbers, sums and norms
    numbers: int
    undecided: Sequence[str]  # what it cannot decide


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The result of a comparison."""

    stages: Sequence[Stage]  # in the order of a training step
    # the compared layers in execution order, first in evaluation mode, then in training mode, then
    # with masks
    layers: Sequence[LayerDifference]
    names: NameMap  # the reference's parameter and layer for each of the port's
    settings: Sequence[str]  # those that differ, whether or not the numbers show it
    # the number of ReLU inputs within rounding of 0; 0 unless gradients differ and no layer does
    ties: int = 0
    # ties of functions that explain differences: "net.py:12, long: 3 ties"
    tied: Sequence[str] = ()
    # what was changed or left out to make the nets comparable, and what could not be compared, one
    # line each
    changes: Sequence[str] = ()
    # versions and variables that differ, one line each
    environment: Sequence[str] = ()
    precision: str = "float32"  # the precision in which the reference's rounding was measured
    compiled: bool = True  # whether MindSpore's side was compiled
    # whether the rounding of the reference was measured (docs/parity.md#units: what counts without it)
    measured: bool = True
    # mode → number of the port's layers that ran, compared or not
    ran: Mapping[str, int] = dataclasses.field(default_factory=dict)
    # outputs, losses and gradients within their tolerance that differ by more than rounding
    # explains, worst first
    beyond: Sequence[Difference] = ()
    probed: Probed = dataclasses.field(default_factory=Probed)  # the comparison on changed inputs
    coverage: Coverage = dataclasses.field(default_factory=Coverage)  # what the comparison covers
    rounding: Rounding = dataclasses.field(default_factory=dict)  # the reference's, as it was used
    seen: Seen | None = None  # what a small trace shows; None: both traces have whole arrays

    @property
    def agrees(self) -> bool:
        """Whether no stage differs and no stage is undecided."""
        return not any(stage.verdict in (DIFFERS, UNDECIDED) for stage in self.stages)

    @property
    def lent(self) -> list[Difference]:
        """The arrays that pass by a wide bound only (`Difference.is_lent`)."""
        return [item for stage in self.stages for item in stage.differences if item.is_lent]

    @property
    def first_stage(self) -> Stage | None:
        """The first stage that differs."""
        return next((stage for stage in self.stages if stage.verdict == DIFFERS), None)

    @property
    def undecided(self) -> list[Stage]:
        """The stages that are undecided."""
        return [stage for stage in self.stages if stage.verdict == UNDECIDED]

    @property
    def counts(self) -> tuple[int, int]:
        """How many arrays are undecided, and how many there are in all stages."""
        every = [item for stage in self.stages for item in (*stage.differences, *stage.left_out)]
        return sum(item.verdict == UNDECIDED for item in every), len(every)

    @property
    def first_computed(self) -> Stage | None:
        """The first stage that differs, apart from the stages of initial values."""
        computed = (stage for stage in self.stages if not stage.overwritten)
        return next((stage for stage in computed if stage.verdict == DIFFERS), None)

    @property
    def first_gradient(self) -> Difference | None:
        """The first gradient that differs."""
        gradients = (stage for stage in self.stages if stage.id.of_first_batch == GRADIENTS)
        return next((stage.first for stage in gradients if stage.first), None)

    @property
    def first_layer(self) -> LayerDifference | None:
        """The first layer in `layers` whose output differs and that no stage leaves out, as a stage
        does with layers that ties change.
        """
        shown = {
            stage.id: {item.id for item in stage.differences if item.verdict == DIFFERS}
            for stage in self.stages
            if stage.id in STAGES_OF_LAYERS.values()
        }
        for layer in self.layers:
            of_stage = shown.get(STAGES_OF_LAYERS[layer.mode], {layer.output.id})
            if layer.output.verdict == DIFFERS and layer.output.id in of_stage:
                return layer
        return None

    def with_causes(self, causes: Sequence[str]) -> "Verdict":
        """Return the verdict with hints at the first computed stage that differs."""
        computed = self.first_computed
        stages = [
            dataclasses.replace(stage, hints=[*stage.hints, *causes])
            if stage is computed
            else stage
            for stage in self.stages
        ]
        return dataclasses.replace(self, stages=stages)
