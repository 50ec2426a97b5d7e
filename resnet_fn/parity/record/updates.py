"""Record the numbers of a few updates, on either side."""

from resnet_fn.parity.record.side import Stepper
from resnet_fn.parity.trace.data import Run
from resnet_fn.parity.trace.plan import LATER, Plan
from resnet_fn.parity.trace.tree import Arrays


def record_run(
    stepper: Stepper, plan: Plan, rates: list[float], last: Arrays, drawn: Arrays
) -> Run:
    """Make the plan's updates, and run each further batch with the first weights.

    `rates` are the learning rates. `last` are the weights with which other state is compared after
    the updates; {}: the side's own. `drawn` are random numbers for constant arrays.
    """
    run = record_updates(stepper, plan, rates, last)
    # The following steps come after the updates, since a user's step may count its calls.
    if not stepper.shows_gradients:
        run.gradients = stepper.on_batch(0, run.start).gradients
    further = range(1, len(plan.batches))
    run.later = [stepper.on_batch(index, run.start) for index in further]
    # before `with_masks`, after which a port's masks stay
    run.drawn = stepper.with_constants(run.start, drawn) if drawn else []
    run.dropped = stepper.with_masks(run.start)
    return run


def record_updates(
    stepper: Stepper, plan: Plan, rates: list[float], last: Arrays, updates: int | None = None
) -> Run:
    """Make one update with each of `rates`, or the first `updates` of them."""
    outputs = stepper.evaluate(plan.batches[0][0])
    start = stepper.state()
    run = Run(outputs, start, rates)
    last_compared = min(LATER, len(plan.batches)) - 1
    run.own_losses, run.own_statistics = stepper.alone()
    for index, rate in enumerate(rates[:updates]):
        step = stepper.update(index, rate)
        run.losses.append(step.loss)
        run.norms.append(step.norm)
        run.train_outputs.append(step.outputs)
        if index == 0:
            run.gradients = step.gradients
            run.clipped = step.clipped
            run.parts = step.parts
            run.sent = step.sent
            run.received = step.received
        if not step.made:
            break
        if index < LATER:
            run.after.append(stepper.state())
        if index == last_compared:
            # with equal weights, outputs show differences in other state
            run.last_outputs = stepper.last_outputs(last, run.after[-1])
            run.moved = stepper.moved()
    run.average = stepper.average()
    return run
