"""Compare which arrays are trained."""

import dataclasses

from resnet_fn.parity.compare.allowed import within
from resnet_fn.parity.compare.rule import TraceRule
from resnet_fn.parity.compare.sides import Sides
from resnet_fn.parity.compare.stage import Stage, not_in_task
from resnet_fn.parity.trace.stages import TRAINED, ArrayId, StageId


@dataclasses.dataclass(frozen=True)
class Trained(TraceRule):
    """Compares which arrays are trained: an optimizer moves them, or at least decays them.

    It does not matter whether an array has a gradient, or has moved in the recorded updates.
    """

    id: StageId = TRAINED

    def stage(self, sides: Sides) -> Stage:
        """Return the comparison, which fails if only one net trains an array."""
        port, reference, names = sides.port, sides.reference, sides.names
        same, apart = [], []
        for name in names.parameters:
            sources = names.sources(name)
            trained_in_port = name in port.trainable
            trained_in_reference = any(source in reference.trainable for source in sources)
            if trained_in_port == trained_in_reference:
                same.append(
                    within(self.tolerance).compare(
                        ArrayId(name), trained_in_port, trained_in_reference
                    )
                )
            elif trained_in_reference:
                apart.append(f"{name}: frozen in the port, trained in the reference")
            else:
                buffer = any(source in reference.buffers for source in sources)
                kind = "a buffer" if buffer else "frozen"
                apart.append(f"{name}: trained in the port, {kind} in the reference")
        if not (same or apart):
            return not_in_task(self.id, "there are none")
        return Stage(self.id, same, hints=apart, failed="; ".join(apart))
