"""The MindSpore side: the port, with what trains it."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn

from resnet_fn.config.wording import first_few
from resnet_fn.parity.record.builds import several_builds
from resnet_fn.parity.record.cells import Attributes, as_before
from resnet_fn.parity.record.kernel_faults import kernel_faults
from resnet_fn.parity.record.masked_cells import Masks, masked
from resnet_fn.parity.record.mindspore_cell import (
    FRAMEWORK,
    MissingKernelError,
    assign,
    compiler,
    explained,
    first_call,
    outputs_of,
    parameters_by_path,
    run_in,
    state,
)
from resnet_fn.parity.record.mindspore_kernels import exact_kernels
from resnet_fn.parity.record.mindspore_layers import (
    Alone,
    inputs_of_layer,
    layers_of,
    probes_of,
    roles_of,
)
from resnet_fn.parity.record.mindspore_loss import Loss, loss_of, value_of
from resnet_fn.parity.record.mindspore_optimizer import (
    CustomOptimizer,
    as_functions,
    optimizer_alone,
    plan_optimizer,
    settings_of,
)
from resnet_fn.parity.record.mindspore_step import (
    Evaluate,
    MakeStep,
    MindSporeStepper,
    evaluation,
)
from resnet_fn.parity.record.rates import Rates
from resnet_fn.parity.record.side import Dropped, Measured, Only
from resnet_fn.parity.record.updates import record_run
from resnet_fn.parity.trace.constants import draw_constants
from resnet_fn.parity.trace.data import (
    STATISTICS_NAMES,
    ParameterSettings,
    Probes,
    Run,
    Trace,
)
from resnet_fn.parity.trace.environment import environment
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.like import Like
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.ranks import check_shares
from resnet_fn.parity.trace.returned import unread
from resnet_fn.parity.trace.source import KernelFault, StoredSource
from resnet_fn.parity.trace.tree import Arrays, Tree, shared, split
from resnet_fn.runtime import process
from resnet_fn.runtime.workers import Workers, sum_over_ranks
from resnet_fn.update.state import Optimizer
from resnet_fn.update.step import make_train_step


class MindSporeSide:
    """A MindSpore net, which is trained itself, and put back: it implements `side.Side`.

    `record` calls the methods about in this order.

    Args:
        net: the port.
        plan: the updates.
        loss: a function (outputs, labels) → number; by default the plan's.
        optimizer: an optimizer that has trainable parameters only; by default the plan's.
        schedule: a function of the update's number that returns the learning rate; by default the
            plan's.
        make_step: a function like `make_train_step`.
        build: makes the net again, to record the initial values of several nets.
        workers: the workers that share each batch.
    """

    is_reference = False

    def __init__(
        self,
        net: nn.Cell,
        plan: Plan,
        *,
        loss: Loss | None = None,
        optimizer: CustomOptimizer | None = None,
        schedule: Callable[[int], float] | None = None,
        make_step: MakeStep = make_train_step,
        build: Callable[[], nn.Cell] | None = None,
        workers: Workers = Workers(),
    ) -> None:
        self.plan, self.framework = plan, FRAMEWORK
        self.worker_count, self.notes = workers.size, list[str]()
        self.unread = set[str]()
        self._net, self._custom_loss, self._optimizer = net, loss, optimizer
        self._schedule, self._make_step = schedule, make_step
        self._build = build
        self._workers = workers
        self._integers = list[Parameter]()  # trained ones, which a session freezes
        self._masks: Masks | None = None  # those inside `masked`
        self._evaluates_as_built = False  # whether evaluation has dropout, which else is off
        self._evaluate: Evaluate | None = None  # evaluates so, compiled if the step is
        # Set by `start`:
        self._start: Arrays  # the net's state before the first update
        self._rates: Rates  # of dropout, as the net was built
        # Set by `without_dropout`:
        self._outputs: dict[str, Any]  # the net's outputs by mode, as examples
        self._loss: Loss  # the user's, or the plan's for such outputs

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """Check that the workers can share the batches, and keep integers as they are.
        MindSpore's generator is not put back.
        """
        parameters = parameters_by_path(self._net)
        batchnorm = any(name.endswith(STATISTICS_NAMES) for name in parameters)
        check_shares(self.plan, self.worker_count, batchnorm)
        integers = {
            name: one
            for name, one in parameters.items()
            if one.requires_grad and not one.dtype.is_floating_point and not one.dtype.is_complex
        }
        if integers:
            words = "the port trains integers, which are kept because they have no gradient"
            self.notes.append(f"{words}: {first_few([*integers])}")
        self._integers = [*integers.values()]
        with _trained(self._integers, False):  # no optimizer takes one
            yield

    def state(self) -> Arrays:
        """Return copies of all parameters and statistics of the net."""
        return state(self._net)

    def start(self, initial: Arrays, like: Like | None) -> None:
        """Take over the reference's weights, if there are any."""
        if like:
            assign(self._net, like.start)
        self._start = shared(state(self._net), like.start if like else initial)
        self._rates = Rates(self._cells)

    def evaluate_as_built(self) -> None:
        """Compile the evaluation before dropout is turned off, and evaluate so from now on."""
        net, inputs = self._net, self.plan.batches[0][0]
        evaluate = evaluation(net, inputs, first_call(net, inputs))
        self._evaluates_as_built = True  # `_rates_in` reads it in the first call below

        def as_built(inputs: Tree) -> Arrays:
            with self._rates_in(False):  # compiled code has the rates of its first call
                return evaluate(inputs)

        self._evaluate = as_built
        with as_before(net):
            as_built(inputs)  # compiles it

    @contextlib.contextmanager
    def without_dropout(self) -> Iterator[Dropped]:
        """Turn dropout off, and choose the loss by the outputs without it."""
        with self._rates.off(self._cells):
            self._choose_loss()
            yield self._rates.dropped

    def roles(self) -> dict[str, Any]:
        """Return which parameters are shared, trained or constant in the net as it was given."""
        with _trained(self._integers, True):
            return roles_of(self._net)

    def forward(self, inputs: Tree, train: bool) -> Any:
        """Return the net's outputs, and restore its mode and state."""
        with self._rates_in(train):
            return first_call(self._net, inputs, train)

    def arrays(self, outputs: Any) -> Arrays:
        """Return outputs as arrays by name."""
        self.unread.update(unread(outputs))
        return outputs_of(outputs)

    def loss(self, outputs: Any, labels: Tree) -> np.ndarray:
        """Return the loss of outputs."""
        return value_of(self._loss, outputs, labels)

    def dropping_layer(
        self, name: str, inputs: np.ndarray | None, only: Only | None, compiled: bool
    ) -> Callable[[], np.ndarray]:
        """Return a function that runs one cell in training mode, with its dropout."""
        cell = self._cells[name]
        if inputs is None:
            with self._rates.off(self._cells):
                args, kwargs = inputs_of_layer(self._net, name, self.plan.first[0])
        else:
            args, kwargs = (Tensor(inputs),), {}
        construct = cell
        if (jit := compiler()) and compiled and not kwargs:
            construct = jit(Alone(cell).construct)

        def run() -> np.ndarray:
            off, on = self._rates.off(self._cells), self._rates.as_built(self._cells, only)
            with off, on, as_before(cell), process.ending_mixed_precision():
                cell.set_train(True)
                return next(iter(outputs_of(construct(*args, **kwargs)).values()))

        return run

    def layers(self, mode: str) -> list[Layer]:
        """Run the net on the first micro-batch, and return the executions of its layers."""
        train = mode != "eval"
        with self._rates_in(train):
            return layers_of(self._net, self.plan.first[0], train)

    def layers_again(self) -> list[Layer]:
        """Return the executions of layers in training mode, with other random numbers."""
        return self.layers("train")

    def probes(self, executions: Sequence[Layer]) -> Probes:
        """Run the net and its layers on probes, uncompiled."""
        with self._rates_in(False):
            off = partial(self._rates.off, self._cells)
            return probes_of(self._net, self.plan.first[0], executions, off)

    def optimizer_settings(self) -> ParameterSettings:
        """Return the settings of the user's optimizer, if it is MindSpore's."""
        return settings_of(self._optimizer, self._net)

    def optimizer_alone(self, like: Like | None) -> dict[int, Arrays]:
        """Return the changes by the user's optimizer on random weights and gradients."""
        if custom := self._custom_optimizer:
            with contextlib.suppress(MissingKernelError), explained(self.plan.batches[0][0]):
                return optimizer_alone(self._net, custom, like)
        return {}

    @contextlib.contextmanager
    def masked(self, masks: Mapping[str, Sequence[np.ndarray]]) -> Iterator[None]:
        """Turn dropout off, and let cells multiply by masks in the further update with dropout.

        `masks` has one mask for each call, by the cell's path. The cells have ones instead until
        that update sets the masks (`mindspore_step`).
        """
        with self._rates.off(self._cells), masked(self._net, masks) as values:
            self._masks = values if masks else None
            try:
                yield
            finally:
                self._masks = None

    def updates(self, like: Like | None) -> Run:
        """Make the updates through the step, and put the weights back."""
        attributes = Attributes(self._net)
        stepper, decays = self.stepper(like)

        def put_back_net() -> None:
            attributes.put_back()
            assign(self._net, self._start)

        try:
            run = self._record_run(stepper, like, put_back_net)
        finally:
            stepper.put_back()  # of the optimizer's state, which `updates` may need again
            put_back_net()
        if not run.after:
            name = type(self._optimizer).__name__ if self._optimizer else self.plan.optimizer.name
            self.notes.append(f"updates are not compared: {name} has no kernel on this device")
        if stepper.rejects:
            self.notes.append(
                f"the port fails with random numbers for constant arrays ({stepper.rejects})"
            )
        self.notes += [decays] if decays else []
        return run

    def loss_example(self) -> Any | None:
        """Return outputs of the first micro-batch, or None if the loss is the plan's."""
        return self._outputs["train"] if self._custom_loss else None

    def of_all_workers(self, outputs: Arrays) -> Arrays:
        """Return the last worker's outputs or, without micro-batches, the outputs of the whole
        batch, as `ranks.merge` does.
        """
        if self.worker_count == 1:
            return outputs
        whole, merged = self.plan.accumulate % self.worker_count > 0, {}
        for name, array in outputs.items():
            rows = self._gathered(array)
            merged[name] = np.concatenate(rows) if whole and array.ndim else rows[-1]
        return merged

    def exact_kernels(
        self, limits: bool = False
    ) -> contextlib.AbstractContextManager[Callable[[], int]]:
        """Return a context in which exp, log, tanh, … compute in float64, uncompiled."""
        return exact_kernels(limits)

    def tensor(self, array: Any) -> Tensor:
        """Return an array as a tensor."""
        return Tensor(array)

    def measured(self) -> Measured:
        """Return nothing: rounding is measured of the reference."""
        return Measured()

    def limits(self) -> list[str]:
        """Return []: limits are noted of the reference."""
        return []

    def builds(self) -> list[Arrays]:
        """Return the initial values of several nets."""
        return several_builds(self._build, state, {mindspore: "set_seed"})

    def environment(self) -> dict[str, str]:
        """Return versions, device and mode of this process."""
        mode = "graph" if compiler() else "pynative"
        deterministic = process.context("deterministic")
        return environment(deterministic=deterministic, mode=mode, **process.started)

    def source(self, trace: Trace) -> StoredSource:
        """Return what the trace itself answers; `MindSporeSource` can run a port again."""
        return StoredSource(trace)

    # Methods beside the protocol that others call: the port's source, and `parity self`.

    def uncompiled(self, like: Like | None) -> Run:
        """Make the updates again without dropout masks, not compiled. The net is as after
        `record`.
        """
        with run_in("pynative"), self._rates.off(self._cells):
            return self.updates(like)

    def kernel_faults(self) -> list[KernelFault]:
        """Return the known faults of MindSpore's kernels that the port may use."""
        given = [one for one in (self._custom_loss, self._make_step, self._optimizer) if one]
        return kernel_faults([*self._cells.values(), *given])

    def stepper(self, like: Like | None = None) -> tuple[MindSporeStepper, str]:
        """Return what makes the updates, and a note if weight decays are the reference's."""
        rates, updates = list(self.plan.rates), range(len(self.plan.batches))
        optimizer, decays = self._custom_optimizer, ""
        if not optimizer:
            optimizer, decays = plan_optimizer(self._net, self.plan.optimizer, like)
        stepper = MindSporeStepper(
            self._net,
            self.plan,
            rates=[*map(self._schedule, updates)] if self._schedule else rates,
            loss=self._loss,
            optimizer=optimizer,
            make_step=self._make_step,
            outputs=self._outputs,
            evaluate=self._evaluate,
            masks=self._masks,
            workers=self._workers,
            start=self._start,
        )
        return stepper, decays

    # Methods that only this class calls.

    def _choose_loss(self) -> None:
        """Run the net in both modes for examples of its outputs, and choose the loss of such."""
        net, plan = self._net, self.plan
        with self._rates_in(False):
            evaluated = first_call(net, plan.batches[0][0])
        self._outputs = {"eval": evaluated, "train": first_call(net, plan.first[0], True)}
        self._loss = self._custom_loss or loss_of(plan.loss, self._outputs["train"])

    def _gathered(self, array: np.ndarray) -> np.ndarray:
        """Return the arrays of all workers, in the order of ranks: each adds its row to zeros."""
        rows = np.zeros((self.worker_count, *array.shape), np.float32)
        rows[self._workers.rank] = array
        return sum_over_ranks(rows, self._workers).astype(array.dtype)

    def _record_run(
        self, stepper: MindSporeStepper, like: Like | None, put_back_net: Callable[[], None]
    ) -> Run:
        """Make the updates. If a compiled step cannot store outputs of varying size, put the net
        back, and start again with a run of the net for them.
        """
        last, drawn = (like.last, like.drawn) if like else ({}, self._constants())
        try:
            return record_run(stepper, self.plan, stepper.rates, last, drawn)
        except ValueError:  # `explained` makes one of any error of the net
            if not (compiler() and self._sizes_vary()):
                raise
            put_back_net()
            stepper.record_outputs_apart()
            return record_run(stepper, self.plan, stepper.rates, last, drawn)

    def _constants(self) -> Arrays:
        """Return random numbers for constant arrays, of a net that is a reference itself."""
        roles = self.roles()
        return draw_constants(self._start, roles["trainable"], roles["tied"])

    def _sizes_vary(self) -> bool:
        """Return whether the sizes of the outputs in training mode depend on the batch."""
        sizes = []
        for inputs, _ in self.plan.batches:
            part = split(inputs, self.plan.accumulate)[0]
            outputs = outputs_of(first_call(self._net, part, True))
            sizes.append({name: one.shape for name, one in outputs.items()})
        return any(one != sizes[0] for one in sizes)

    @cached_property
    def _custom_optimizer(self) -> Optimizer | None:
        return as_functions(self._optimizer, self._net)

    @cached_property
    def _cells(self) -> dict[str, nn.Cell]:
        return dict(self._net.cells_and_names())

    @contextlib.contextmanager
    def _rates_in(self, train: bool) -> Iterator[None]:
        """Give the net the dropout rates of this mode inside a `with` block."""
        if train or not self._evaluates_as_built:
            yield
            return
        lifted = self._masks.lifted() if self._masks else contextlib.nullcontext()
        with self._rates.as_built(self._cells), lifted:
            yield


@contextlib.contextmanager
def _trained(parameters: Sequence[Parameter], trained: bool) -> Iterator[None]:
    """Train or freeze parameters inside a `with` block."""
    with contextlib.ExitStack() as restored:
        for one in parameters:
            restored.callback(setattr, one, "requires_grad", one.requires_grad)
            one.requires_grad = trained
        yield
