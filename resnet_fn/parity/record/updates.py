"""Record the numbers of a few updates, on either side."""

from typing import Any

from resnet_fn.parity.record.side import Step, Stepper
from resnet_fn.parity.trace.data import Run
from resnet_fn.parity.trace.plan import LATER, Plan
from resnet_fn.parity.trace.tree import Arrays, shared


class Watch:
    """Is called while a run is made, and may drop what it has seen. This one does nothing."""

    def started(self, run: Run) -> None:
        """Look at a run before the first update."""

    def first(self, run: Run) -> None:
        """Look at a run that has the gradients of update 1, but not yet the state after it."""

    def updated(self, run: Run) -> None:
        """Look at a run after an update."""

    def finished(self, run: Run) -> None:
        """Look at a run after the last update."""

    def further(self, run: Run, **marks: Any) -> None:
        """Look at a further pass, whose stages have these marks (fields of `StageId`)."""


UNWATCHED = Watch()


def record_run(
    stepper: Stepper,
    plan: Plan,
    rates: list[float],
    last: Arrays,
    drawn: Arrays,
    watch: Watch = UNWATCHED,
) -> Run:
    """Make the plan's updates, and run each further batch with the first weights.

    `rates` are the learning rates. `last` are the weights with which other state is compared after
    the updates; {}: the side's own. `drawn` are random numbers for constant arrays.
    """
    run = record_updates(stepper, plan, rates, last, watch=watch)
    # The following steps come after the updates, since a user's step may count its calls.
    if not stepper.shows_gradients:
        run.gradients = stepper.on_batch(0, run.start).gradients
    for index in range(1, len(plan.batches)):
        run.later.append(stepper.on_batch(index, run.start))
        watch.further(run.later[-1], batch=index + 1)
    # before `with_masks`, after which a port's masks stay
    run.drawn = stepper.with_constants(run.start, drawn) if drawn else []
    for further_run in run.drawn:
        watch.further(further_run, drawn=True)
    run.dropped = stepper.with_masks(run.start)
    for further_run in run.dropped:
        watch.further(further_run, masked=True)
    return run


def record_updates(
    stepper: Stepper,
    plan: Plan,
    rates: list[float],
    last: Arrays,
    updates: int | None = None,
    watch: Watch = UNWATCHED,
) -> Run:
    """Make one update with each of `rates`, or the first `updates` of them."""
    # the state from before an evaluation, which may merge weights or move state
    run = Run({}, stepper.state(), rates)
    run.eval_outputs = stepper.evaluate(plan.batches[0][0])
    watch.started(run)
    last_compared = min(LATER, len(plan.batches)) - 1
    run.own_losses, run.own_statistics = stepper.alone()
    for index, rate in enumerate(rates[:updates]):
        # The step is not kept, so that the watch can drop its gradients.
        made = _add(run, stepper.update(index, rate))
        if index == 0:
            watch.first(run)
        if not made:
            break
        if index < LATER:
            run.after.append(shared(stepper.state(), run.start))
        if index == last_compared:
            # with equal weights, outputs show differences in other state
            run.last_outputs = stepper.last_outputs(last, run.after[-1])
            run.moved = stepper.moved()
        watch.updated(run)
    run.average = stepper.average()
    watch.finished(run)
    return run


def _add(run: Run, step: Step) -> bool:
    """Add what an update computed, and return whether it changed the weights."""
    if not run.losses:  # update 1
        run.gradients = step.gradients
        run.clipped = step.clipped
        run.no_gradient = step.no_gradient
        run.parts = step.parts
        run.sent = step.sent
        run.received = step.received
    run.losses.append(step.loss)
    run.norms.append(step.norm)
    run.train_outputs.append(step.outputs)
    return step.made
