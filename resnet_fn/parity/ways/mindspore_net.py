"""A MindSpore net that is computed in several ways."""

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor, nn

from resnet_fn.parity.record import rounding
from resnet_fn.parity.record.cells import as_before, write
from resnet_fn.parity.record.kernel_faults import kernel_faults
from resnet_fn.parity.record.layers import recorded_layers
from resnet_fn.parity.record.mindspore_cell import (
    FRAMEWORK,
    array_of,
    assign,
    call,
    explained,
    first_call,
    missing_kernel,
    outputs_of,
    run_in,
    state,
)
from resnet_fn.parity.record.mindspore_layers import layers_of
from resnet_fn.parity.record.mindspore_loss import Loss
from resnet_fn.parity.record.mindspore_optimizer import CustomOptimizer
from resnet_fn.parity.record.mindspore_side import MindSporeSide
from resnet_fn.parity.trace.data import Run, Trace
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.returned import unread
from resnet_fn.parity.trace.tree import Arrays, Tree, map_values
from resnet_fn.parity.ways.half import rounded, rounded_inputs
from resnet_fn.parity.ways.updates import updates_of
from resnet_fn.parity.ways.way import NotApplicableError
from resnet_fn.runtime import process

# in the error of an operation that rejects a type
_OF_TYPES = re.compile(r"(?:Select \w+ operator|primitive)\[(\w+)\]")

MakeOptimizer = Callable[[nn.Cell], CustomOptimizer]


class MindSporeNet:
    """A MindSpore net, which is put back after each way.

    Args:
        net: the net as it was built.
        plan: the updates.
        loss: a function (outputs, labels) → number; by default the plan's.
        make_optimizer: returns an optimizer of the net; by default the plan's.
    """

    compiler, compiles_always = "graph mode", True

    def __init__(
        self,
        net: nn.Cell,
        plan: Plan,
        loss: Loss | None = None,
        make_optimizer: MakeOptimizer | None = None,
    ) -> None:
        self.framework, self.plan = FRAMEWORK, plan
        self._net, self._loss, self._make_optimizer = net, loss, make_optimizer
        with run_in("pynative"):
            first_call(net, plan.batches[0][0])  # which makes lazy parameters

    @contextlib.contextmanager
    def fresh(self) -> Iterator["MindSporeNet"]:
        """Put the net back at the end of a `with` block."""
        with as_before(self._net):
            yield self

    def evaluated(self, inputs: Tree) -> Trace:
        """Return the state, layers and outputs of an evaluation."""
        net, start = self._net, state(self._net)
        with run_in("pynative"), explained(inputs):
            layers = layers_of(net, inputs, False)
            returned = call(net.set_train(False), inputs)
            outputs = outputs_of(returned)
        run, left = Run(outputs, start, []), sorted(unread(returned))
        return Trace(self.framework, self.plan, start, {"eval": layers}, run, unread=left)

    def with_rounding(self, inputs: Tree) -> Trace:
        """Return `evaluated`: MindSpore's rounding is not measured."""
        return self.evaluated(inputs)

    def train(self) -> None:
        """Make the plan's updates, uncompiled and without dropout."""
        side = self._side(self.plan)
        with run_in("pynative"), side.session():
            side.start(side.state(), None)
            with side.without_dropout(), side.masked({}):
                side.prepare_updates()
                stepper = side.stepper()
                for index, rate in enumerate(self.plan.rates):
                    stepper.update(index, rate)

    def saved(self) -> Arrays:
        """Return copies of the parameters, as a checkpoint has them."""
        return state(self._net)

    def restore(self, saved: Arrays) -> None:
        """Set the parameters."""
        assign(self._net, saved)

    def _side(self, plan: Plan) -> MindSporeSide:
        make = self._make_optimizer
        optimizer = make(self._net) if make else None
        return MindSporeSide(self._net, plan, loss=self._loss, optimizer=optimizer)

    def updates(self, plan: Plan) -> Trace:
        """Return the trace of a plan's updates, uncompiled, with the changes by noise as rounding."""
        with run_in("pynative"):
            trace = updates_of(self._side(plan))
            with as_before(self._net):
                self._add_noise(plan.seed)
                noisy = updates_of(self._side(plan))
        changes = rounding.rounding(noisy.run, trace.run)
        unknown = {stage: dict.fromkeys(errors, 0.0) for stage, errors in changes.items()}
        changes = rounding.without_scaled(changes, plan.optimizer)
        trace.rounding = rounding.with_noise(unknown, [changes])
        return trace

    def _add_noise(self, seed: int) -> None:
        """Change every weight by one unit in the last place, up or down."""
        rng = np.random.default_rng(seed)
        for parameter in self._net.get_parameters():
            if parameter.dtype == mindspore.float32:
                signs = rng.choice((-1.0, 1.0), parameter.shape)
                write(parameter, parameter.numpy() * (1 + 2.0**-23 * signs))

    def compiled(self, plan: Plan) -> tuple[Trace, Trace]:
        """Return the traces of the plan's updates, in graph mode and in PyNative mode."""
        side = self._side(plan)
        compiled = updates_of(side)
        faults = kernel_faults(side.code_of_user())
        compiled.notes = [fault.words for fault in faults if fault.compiled]
        return compiled, self.updates(plan)

    def in_half(self, inputs: Tree, half: str) -> Trace:
        """Return an evaluation in half precision, as `Cell.to_float` makes it."""
        with _own_precision(self._net):
            self._net.to_float(getattr(mindspore, half))
            return self._with_kernels(inputs, half)

    def _with_kernels(self, inputs: Tree, half: str) -> Trace:
        """Return an evaluation, or raise an error that names the operation without a kernel."""
        try:
            return self.evaluated(inputs)
        except Exception as error:
            text = f"{error} {error.__cause__}"
            kernel = missing_kernel(text) or "".join(_OF_TYPES.findall(text)[:1])
            if not kernel:
                raise
            missing = f"{process.started.get('device', 'CPU')} has no kernel of {kernel} in {half}"
            raise NotApplicableError(f"not exercised: {missing}; try another device") from None

    def rounded_to(self, inputs: Tree, half: str) -> Trace:
        """Return an evaluation with rounded weights, and rounded inputs and outputs of layers."""

        def round_tensor(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor) or not leaf.dtype.is_floating_point:
                return leaf
            return Tensor(rounded(array_of(leaf), half), leaf.dtype)

        def before(cell: nn.Cell, args: Any, kwargs: Any) -> Any:
            return map_values(round_tensor, (args, kwargs))

        def after(cell: nn.Cell, args: Any, outputs: Any) -> Any:
            return map_values(round_tensor, outputs)

        with contextlib.ExitStack() as hooks:
            for parameter in self._net.get_parameters():
                if parameter.dtype.is_floating_point:
                    write(parameter, rounded(parameter.numpy(), half))
            for _, cell in recorded_layers(self._net):
                hooks.callback(cell.register_forward_pre_hook(before, with_kwargs=True).remove)
                hooks.callback(cell.register_forward_hook(after).remove)
            return self.evaluated(rounded_inputs(inputs, half))


@contextlib.contextmanager
def _own_precision(net: nn.Cell) -> Iterator[None]:
    """Put back the precision of each cell at the end of a `with` block, also where it is not set."""
    # MindSpore has no public function for this
    from mindspore._c_expression import Cell_, MixedPrecisionType

    before = [(cell, cell.mixed_precision_type) for _, cell in net.cells_and_names()]
    try:
        yield
    finally:
        for cell, kind in before:
            cell.mixed_precision_type = kind
            Cell_.set_mixed_precision_type(cell, kind or MixedPrecisionType.NOTSET)
