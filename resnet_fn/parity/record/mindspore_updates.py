"""The updates of a MindSpore net, as its step makes them and uncompiled, and notes of what failed."""

from collections.abc import Callable, Mapping
from typing import Any

from mindspore import nn

from resnet_fn.parity.record.cells import Attributes
from resnet_fn.parity.record.mindspore_cell import (
    assign,
    compiler,
    first_call,
    outputs_of,
    run_in,
)
from resnet_fn.parity.record.mindspore_optimizer import (
    CustomOptimizer,
    as_functions,
    plan_optimizer,
)
from resnet_fn.parity.record.mindspore_step import MindSporeStepper
from resnet_fn.parity.record.updates import record_run
from resnet_fn.parity.trace.constants import draw_constants
from resnet_fn.parity.trace.data import Run
from resnet_fn.parity.trace.like import Like
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.tree import Arrays, split
from resnet_fn.update.state import Optimizer


class PortRuns:
    """Makes the updates of a port, and then again in other ways.

    The net itself is trained. After each run, it is put back, and so is the optimizer's state. The
    reference's counterpart is `ReferenceRuns` (torch_reference_runs.py).

    Args:
        net: the port.
        plan: the updates.
        optimizer: the given optimizer; None: it is the plan's. ValueError if it is rejected.
        start: the net's state before the updates.
        roles: returns which arrays are trained or shared (`Side.roles`).
        make_stepper: makes what trains the net with an optimizer.
        notes: gets a line for each thing that fails in `updates`.
    """

    def __init__(
        self,
        net: nn.Cell,
        plan: Plan,
        *,
        optimizer: CustomOptimizer | None,
        start: Arrays,
        roles: Callable[[], Mapping[str, Any]],
        make_stepper: Callable[[Optimizer], MindSporeStepper],
        notes: list[str],
    ) -> None:
        # None: it is the plan's, which is made anew for each run
        self.given_optimizer = as_functions(optimizer, net)
        self._optimizer_name = type(optimizer).__name__ if optimizer else plan.optimizer.name
        self._net, self._plan, self._start = net, plan, start
        self._roles, self._make_stepper, self._notes = roles, make_stepper, notes

    def stepper(self) -> MindSporeStepper:
        """Return what makes the updates of a net that is compared with no reference."""
        optimizer, _ = self._optimizer(None)
        return self._make_stepper(optimizer)

    def updates(self, like: Like | None) -> Run:
        """Make the updates through the step, and note what failed."""
        run, notes = self._made(like, self._drawn(like))
        self._notes += notes
        return run

    def uncompiled(self, like: Like | None) -> Run:
        """Make the updates again, not compiled and without notes."""
        return self._uncompiled(like, self._drawn(like))

    def by_kernels(self, like: Like | None) -> Run:
        """Make the updates again, not compiled, without notes, and without passes with random
        numbers for constant arrays.
        """
        return self._uncompiled(like, {})

    def _drawn(self, like: Like | None) -> Arrays:
        """Return the reference's random numbers for constant arrays or, of a net that is a
        reference itself, its own.
        """
        if like:
            return like.drawn
        roles = self._roles()
        return draw_constants(self._start, roles["trainable"], roles["tied"])

    def _uncompiled(self, like: Like | None, drawn: Arrays) -> Run:
        with run_in("pynative"):
            run, _ = self._made(like, drawn)
        return run

    def _made(self, like: Like | None, drawn: Arrays) -> tuple[Run, list[str]]:
        """Make the updates, and then passes with the random numbers `drawn` for constant arrays.
        Return them with notes.
        """
        # before the stepper: the user's optimizer or step may set attributes of the net
        attributes = Attributes(self._net)
        optimizer, decays_note = self._optimizer(like)
        stepper = self._make_stepper(optimizer)
        try:
            run = self._run(stepper, attributes, like.last if like else {}, drawn)
        finally:
            stepper.put_back()  # of the optimizer's state, which further updates may need
            self._put_back(attributes)
        notes = [*self._failures(run, stepper), decays_note]
        return run, list(filter(None, notes))

    def _optimizer(self, like: Like | None) -> tuple[Optimizer, str]:
        """Return the given optimizer, or the plan's with a note if the reference has other weight
        decays.
        """
        optimizer = self.given_optimizer
        return (
            (optimizer, "") if optimizer else plan_optimizer(self._net, self._plan.optimizer, like)
        )

    def _run(
        self, stepper: MindSporeStepper, attributes: Attributes, last: Arrays, drawn: Arrays
    ) -> Run:
        """Make the updates. If a compiled step cannot store outputs of varying size, put the net
        back, and start again with a run of the net for them.
        """
        try:
            return record_run(stepper, self._plan, stepper.rates, last, drawn)
        except ValueError:  # `explained` makes one of any error of the net
            if not (compiler() and self._sizes_vary()):
                raise
            self._put_back(attributes)
            stepper.record_outputs_apart()
            return record_run(stepper, self._plan, stepper.rates, last, drawn)

    def _sizes_vary(self) -> bool:
        """Return whether the sizes of the outputs in training mode depend on the batch."""
        sizes = []
        for inputs, _ in self._plan.batches:
            part = split(inputs, self._plan.accumulate)[0]
            outputs = outputs_of(first_call(self._net, part, True))
            sizes.append({name: array.shape for name, array in outputs.items()})
        return any(shapes != sizes[0] for shapes in sizes)

    def _put_back(self, attributes: Attributes) -> None:
        """Restore the net's attributes, parameters and statistics."""
        attributes.put_back()
        assign(self._net, self._start)

    def _failures(self, run: Run, stepper: MindSporeStepper) -> list[str]:
        """Return a note if no update was made, and one if the net fails with random constants."""
        notes = []
        if not run.after:
            name = self._optimizer_name
            notes.append(f"updates are not compared: {name} has no kernel on this device")
        if stepper.rejects:
            message = "the port fails with random numbers for constant arrays"
            notes.append(f"{message} ({stepper.rejects})")
        return notes
