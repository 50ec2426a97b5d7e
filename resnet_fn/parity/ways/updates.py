"""Record the updates of one side without what only a comparison of two nets needs."""

from resnet_fn.parity.record.randomness import is_random
from resnet_fn.parity.record.side import Side
from resnet_fn.parity.trace.data import Trace
from resnet_fn.parity.ways.way import NotApplicableError


def updates_of(side: Side) -> Trace:
    """Make the plan's updates without dropout, and return their trace with the side's rounding.

    The net has its weights from before the updates again.
    """
    plan = side.plan
    with side.session():
        initial = side.start(side.state(), None)
        if is_random(lambda: side.arrays(side.forward(plan.batches[0][0], False))):
            raise NotApplicableError("not exercised: the net draws random numbers in evaluation")
        side.evaluate_as_built()
        with side.without_dropout():
            if is_random(lambda: side.arrays(side.forward(plan.first[0], True))):
                raise NotApplicableError("not exercised: the net draws random numbers in training")
            layers = {mode: side.layers(mode) for mode in ("eval", "train")}
        side.prepare_updates()
        with side.masked({}):
            run = side.updates(None)
        rounding = side.measured().rounding
        roles = side.roles()
    left = sorted(side.unread)
    return Trace(side.framework, side.plan, initial, layers, run, rounding, unread=left, **roles)
