"""Record the numbers of a few updates, on either side."""

from collections.abc import Collection, Iterator

from resnet_fn.parity.record.side import Stepper
from resnet_fn.parity.trace.data import Run
from resnet_fn.parity.trace.plan import LATER, Plan
from resnet_fn.parity.trace.tree import Arrays


def record_run(stepper: Stepper, plan: Plan, rates: list[float], last: Arrays) -> Run:
    """Make the plan's updates, and run each further batch with the first weights.

    `rates` are the learning rates. `last` are the weights with which other state is compared after
    the updates; {}: the side's own.
    """
    run, *further = record_parts(stepper, plan, rates, last)
    count = len(plan.batches) - 1
    run.later, run.dropped = further[:count], further[count:]
    return run


def record_parts(stepper: Stepper, plan: Plan, rates: list[float], last: Arrays) -> Iterator[Run]:
    """Yield the updates, each further batch with the first weights, and the update with masks.

    Who needs one part at a time needs less memory.
    """
    run = record_updates(stepper, plan, rates, last)
    start = run.start
    # The following steps come after the updates, since a user's step may count its calls.
    if not stepper.shows_gradients:
        run.gradients = stepper.on_batch(0, start).gradients
    yield run
    del run
    for index in range(1, len(plan.batches)):
        yield stepper.on_batch(index, start)
    yield from stepper.with_masks(start)


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
            if index > 1:  # only the first and the last weights are compared
                run.after[-2] = _without(run.after[-2], run.clipped)
        if index == last_compared:
            # with equal weights, outputs show differences in other state
            run.last_outputs = stepper.last_outputs(last, run.after[-1])
            run.moved = stepper.moved()
    run.average = stepper.average()
    return run


def _without(state: Arrays, trained: Collection[str]) -> Arrays:
    return {name: array for name, array in state.items() if name not in trained}
