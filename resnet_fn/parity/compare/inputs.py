"""Compare the batches that both sides got."""

import dataclasses
from collections.abc import Sequence

from resnet_fn.parity.compare.allowed import EQUAL, within
from resnet_fn.parity.compare.rule import Rule
from resnet_fn.parity.compare.sides import Sides
from resnet_fn.parity.compare.stage import Absent, Stage
from resnet_fn.parity.trace.stages import INPUTS, ArrayId
from resnet_fn.parity.trace.tree import Arrays, Batch, named_leaves


@dataclasses.dataclass(frozen=True)
class Inputs(Rule):
    """Compares inputs and labels bit for bit."""

    def stage(self, sides: Sides) -> Stage:
        """Return the comparison of all batches."""
        return inputs_stage(sides.port.plan.batches, sides.reference.plan.batches)


def inputs_stage(port: Sequence[Batch], reference: Sequence[Batch]) -> Stage:
    """Compare the inputs and labels of both sides bit for bit."""
    differences = []
    for update, (mine, other) in enumerate(zip(port, reference, strict=True), 1):
        for which, single in enumerate(("inputs", "labels")):
            a = named_leaves(mine[which], single)
            b = named_leaves(other[which], single)
            if _shapes(a) != _shapes(b):
                words = f"update {update}: the {single} have other names or shapes"
                return Stage(INPUTS, failed=words)
            for name in b:
                array = ArrayId(name, update=update)
                differences.append(within(EQUAL).compare(array, a[name], b[name]))
    return Stage(INPUTS, differences, absent=Absent.NOT_IN_TASK)


def _shapes(arrays: Arrays) -> dict[str, tuple[int, ...]]:
    return {name: one.shape for name, one in arrays.items()}
