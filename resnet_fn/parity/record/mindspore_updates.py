"""Make the updates of a MindSpore net through a stepper, put the net back, and note what failed."""

from collections.abc import Callable, Mapping
from typing import Any

from mindspore import nn

from resnet_fn.parity.record.cells import Attributes
from resnet_fn.parity.record.mindspore_cell import assign, compiler, first_call, outputs_of
from resnet_fn.parity.record.mindspore_step import MindSporeStepper
from resnet_fn.parity.record.updates import record_run
from resnet_fn.parity.trace.constants import draw_constants
from resnet_fn.parity.trace.data import Run
from resnet_fn.parity.trace.like import Like
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.tree import Arrays, split


class NetBefore:
    """Puts a net back after updates, with the attributes that it has when this is made.

    Make it before the stepper: the user's optimizer or step may set attributes of the net.

    Args:
        net: the net.
        state: the parameters and statistics that it gets back.
    """

    def __init__(self, net: nn.Cell, state: Arrays) -> None:
        self.net = net
        self._state = state
        self._attributes = Attributes(net)

    def put_back(self) -> None:
        """Restore the attributes, parameters and statistics."""
        self._attributes.put_back()
        assign(self.net, self._state)


def recorded_updates(
    stepper: MindSporeStepper, before: NetBefore, plan: Plan, last: Arrays, drawn: Arrays
) -> Run:
    """Make a plan's updates, and put back the net and the optimizer's state.

    `last` and `drawn` are as in `record_run`.
    """
    try:
        return _record_run(stepper, before, plan, last, drawn)
    finally:
        stepper.put_back()  # of the optimizer's state, which further updates may need
        before.put_back()


def _record_run(
    stepper: MindSporeStepper, before: NetBefore, plan: Plan, last: Arrays, drawn: Arrays
) -> Run:
    """Make the updates. If a compiled step cannot store outputs of varying size, put the net back,
    and start again with a run of the net for them.
    """
    try:
        return record_run(stepper, plan, stepper.rates, last, drawn)
    except ValueError:  # `explained` makes one of any error of the net
        if not (compiler() and _sizes_vary(before.net, plan)):
            raise
        before.put_back()
        stepper.record_outputs_apart()
        return record_run(stepper, plan, stepper.rates, last, drawn)


def _sizes_vary(net: nn.Cell, plan: Plan) -> bool:
    """Return whether the sizes of the outputs in training mode depend on the batch."""
    sizes = []
    for inputs, _ in plan.batches:
        part = split(inputs, plan.accumulate)[0]
        outputs = outputs_of(first_call(net, part, True))
        sizes.append({name: array.shape for name, array in outputs.items()})
    return any(shapes != sizes[0] for shapes in sizes)


def drawn_constants(
    like: Like | None, start: Arrays, roles: Callable[[], Mapping[str, Any]]
) -> Arrays:
    """Return the reference's random numbers for constant arrays or, of a net that is a reference
    itself, its own.

    `start` is the net's state before the updates, and `roles` returns which arrays are trained or
    shared (`Side.roles`).
    """
    if like:
        return like.drawn
    own = roles()
    return draw_constants(start, own["trainable"], own["tied"])


def notes_of_updates(run: Run, optimizer: str, rejects: str) -> list[str]:
    """Return a note if no update was made, and one if the net fails with random constants.

    `optimizer` is the optimizer's name, and `rejects` the reason of that failure
    (`Stepper.rejects`).
    """
    notes = []
    if not run.after:
        notes.append(f"updates are not compared: {optimizer} has no kernel on this device")
    if rejects:
        notes.append(f"the port fails with random numbers for constant arrays ({rejects})")
    return notes
