"""Record the numbers of a few updates, on either side."""

from resnet_fn.parity.record.side import Stepper
from resnet_fn.parity.trace.data import Run
from resnet_fn.parity.trace.plan import LATER, Plan
from resnet_fn.parity.trace.tree import Arrays


def record_run(stepper: Stepper, plan: Plan, rates: list[float], last: Arrays) -> Run:
    """Make the plan's updates, and run each further batch with the first weights.

    `rates` are the learning rates. `last` are the weights with which other state is compared after
    the updates; {}: the side's own.
    """
    run, known = record_updates(stepper, plan, rates, last)
    # The following steps come after the updates, since a user's step may count its calls.
    if not known:
        run.gradients = stepper.on_batch(0, run.start).gradients
    run.later = [stepper.on_batch(index, run.start) for index in range(1, len(plan.batches))]
    run.dropped = stepper.with_masks(run.start)
    return run


def record_updates(
    stepper: Stepper, plan: Plan, rates: list[float], last: Arrays, updates: int | None = None
) -> tuple[Run, bool]:
    """Make one update with each of `rates`, or the first `updates` of them.

    Returns what was computed, and whether the gradients before clipping are part of it.
    """
    outputs = stepper.evaluate(plan.batches[0][0])
    run, known = Run(outputs, start=stepper.state(), rates=rates), True
    run.own_losses, run.own_statistics = stepper.alone()
    for index, rate in enumerate(rates[:updates]):
        step = stepper.update(index, rate)
        run.losses.append(step.loss)
        run.norms.append(step.norm)
        run.train_outputs.append(step.outputs)
        if index == 0:
            known, run.gradients = step.gradients is not None, step.gradients or {}
            run.clipped, run.parts = step.clipped, list(step.parts)
            run.sent, run.received = step.sent, step.received
        if not step.made:
            break
        if index < LATER:
            run.after.append(stepper.state())
        if index + 1 == min(LATER, len(plan.batches)):
            # with equal weights, outputs show differences in other state
            run.last_outputs = stepper.last_outputs(last, run.after[-1])
            run.moved = stepper.moved()
    run.average = stepper.average()
    return run, known
