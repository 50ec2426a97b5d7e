"""Compare stages again with the rounding that ties of numbers explain.

A tie is a number so near to a step that rounding decides on which side it is. The bounds with ties
are in `allowed`.
"""

import dataclasses
from collections.abc import Sequence

from resnet_fn.parity.compare import allowed
from resnet_fn.parity.compare.comparing import compare_stages
from resnet_fn.parity.compare.result import Verdict
from resnet_fn.parity.compare.sides import Sides
from resnet_fn.parity.trace.data import Rounding
from resnet_fn.parity.trace.difference import DIFFERS
from resnet_fn.parity.trace.stages import TRAIN_FORWARD


def excusing_step_ties(result: Verdict, sides: Sides) -> Verdict:
    """Return the verdict that excuses what ties of functions such as `long` change.

    Nothing is excused if the first computed stage that differs still does: then ties are not the
    reason.
    """
    first = result.first_computed
    step_ties = sides.reference.ties
    if step_ties is None or first is None:
        return result
    differs = [stage.id for stage in result.stages if stage.verdict == DIFFERS]
    forward_differs = any(
        (stage_id.name, stage_id.mode) == (TRAIN_FORWARD.name, "train") for stage_id in differs
    )
    rounding = allowed.rounding_with_step_ties(sides.rounding, step_ties.rounding, forward_differs)
    excusing = dataclasses.replace(
        sides, rounding=rounding, recorded=sides.rounding, otherwise=step_ties.run
    )
    stages = compare_stages(excusing)
    # weights may have been compared after an earlier update
    first_again = [stage for stage in stages if stage.id.of_any_update == first.id.of_any_update]
    if any(stage.verdict == DIFFERS for stage in first_again):
        return result
    return dataclasses.replace(result, stages=stages, rounding=rounding, tied=step_ties.lines)


def width_to_ask(result: Verdict, widths: Sequence[float]) -> float | None:
    """Return the width of the ties of ReLUs that may explain gradients that differ, or None.

    `widths` are those of which the reference's source has an answer.
    """
    if result.first_layer is not None or result.first_gradient is None:
        return None
    # the rounding of float16 includes these ties
    if not widths or result.precision != "float32":
        return None
    # layers that still differ are left out: other ties change them
    outputs = [
        layer.output
        for layer in result.layers
        if layer.mode == "train" and layer.output.verdict != DIFFERS
    ]
    needed = allowed.tie_width(outputs)
    return next((width for width in widths if width >= needed), max(widths))


def excusing_relu_ties(result: Verdict, sides: Sides, flipped: Rounding, count: int) -> Verdict:
    """Return the verdict by the rounding that includes `count` flipped ties of ReLUs.

    `result` may excuse step ties already, and still does then.
    """
    rounding = allowed.rounding_with_relu_ties(result.rounding, flipped)
    step_ties = sides.reference.ties
    otherwise = step_ties.run if step_ties and result.tied else None
    unchanged = None  # with another run, outputs change too, so no stage is kept
    if not otherwise:  # only the rounding changes
        unchanged = {stage.id: stage for stage in result.stages}
    sides = dataclasses.replace(
        sides, rounding=rounding, recorded=sides.rounding, otherwise=otherwise
    )
    stages = compare_stages(sides, unchanged)
    return dataclasses.replace(result, stages=stages, ties=count, rounding=rounding)
