"""Compare with the decisions that the port has made where rounding decides."""

import dataclasses
from collections.abc import Callable
from typing import TypeVar

from resnet_fn.parity.compare.sides import Sides
from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.trace import reasons
from resnet_fn.parity.trace.difference import AGREES, DIFFERS, UNDECIDED

Compared = TypeVar("Compared", Stage, Stage | None)


def by_either_decision(compare: Callable[[Sides], Compared], sides: Sides) -> Compared:
    """Return the comparison with the reference or, if only that agrees, with the reference's run in
    which every tie is decided otherwise.
    """
    stage = compare(sides)
    if stage is None or sides.otherwise is None or stage.verdict not in (UNDECIDED, DIFFERS):
        return stage
    other = compare(sides.decided_otherwise)
    if other is None or other.verdict not in AGREES:
        return stage
    passes = {item.id: item for item in stage.differences if item.verdict in AGREES}
    differences = []
    for item in other.differences:
        differences.append(passes.get(item.id) or dataclasses.replace(item, why=reasons.TIES))
    return dataclasses.replace(other, differences=differences)
