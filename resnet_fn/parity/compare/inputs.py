"""Compare the batches that both sides got."""

import dataclasses
from collections.abc import Sequence

from resnet_fn.parity.compare.allowed import within
from resnet_fn.parity.compare.rule import TraceRule
from resnet_fn.parity.compare.sides import Sides
from resnet_fn.parity.compare.stage import Absent, Stage
from resnet_fn.parity.trace.stages import INPUTS, ArrayId, StageId
from resnet_fn.parity.trace.tree import Arrays, Batch, named_leaves


@dataclasses.dataclass(frozen=True)
class Inputs(TraceRule):
    """Compares inputs and labels bit for bit."""

    id: StageId = INPUTS

    def stage(self, sides: Sides) -> Stage:
        """Return the comparison of all batches."""
        return self.compare(sides.port.plan.batches, sides.reference.plan.batches)

    def compare(self, port: Sequence[Batch], reference: Sequence[Batch]) -> Stage:
        """Compare the inputs and labels of both sides."""
        bound = within(self.tolerance)
        differences = []
        pairs = zip(port, reference, strict=True)
        for update, (port_batch, reference_batch) in enumerate(pairs, 1):
            for which, single in enumerate(("inputs", "labels")):
                port_arrays = named_leaves(port_batch[which], single)
                reference_arrays = named_leaves(reference_batch[which], single)
                if _shapes(port_arrays) != _shapes(reference_arrays):
                    message = f"update {update}: the {single} have other names or shapes"
                    return Stage(self.id, failed=message)
                for name, array in reference_arrays.items():
                    array_id = ArrayId(name, update=update)
                    differences.append(bound.compare(array_id, port_arrays[name], array))
        return Stage(self.id, differences, absent=Absent.NOT_IN_TASK)


def _shapes(arrays: Arrays) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in arrays.items()}
