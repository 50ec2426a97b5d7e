"""The MindSpore side: the port, with what trains it."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn

from resnet_fn.config.wording import first_few
from resnet_fn.parity.record.builds import several_builds
from resnet_fn.parity.record.cells import as_before, requiring_grad
from resnet_fn.parity.record.masked_cells import Masks
from resnet_fn.parity.record.masked_cells import masked as with_masks
from resnet_fn.parity.record.mindspore_cell import (
    FRAMEWORK,
    MissingKernelError,
    assign,
    environment_of_process,
    explained,
    first_call,
    outputs_of,
    parameters_by_path,
    state,
    trained_integers,
)
from resnet_fn.parity.record.mindspore_kernels import exact_gradients, exact_kernels
from resnet_fn.parity.record.mindspore_layers import (
    inputs_of_layer,
    layers_of,
    probes_of,
    roles_of,
    running_layer,
)
from resnet_fn.parity.record.mindspore_loss import Loss, loss_of, value_of
from resnet_fn.parity.record.mindspore_optimizer import (
    CustomOptimizer,
    optimizer_alone,
    settings_of,
)
from resnet_fn.parity.record.mindspore_step import (
    Evaluate,
    MakeStep,
    MindSporeStepper,
    evaluation,
)
from resnet_fn.parity.record.mindspore_updates import PortRuns
from resnet_fn.parity.record.mindspore_workers import merged_outputs
from resnet_fn.parity.record.rates import Rates
from resnet_fn.parity.record.side import Dropped, Measured, Only
from resnet_fn.parity.trace.data import (
    STATISTICS_NAMES,
    ParameterSettings,
    Probes,
    Run,
    Trace,
)
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.like import Like
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.ranks import check_shares
from resnet_fn.parity.trace.returned import unread
from resnet_fn.parity.trace.source import StoredSource
from resnet_fn.parity.trace.tree import Arrays, Tree, shared
from resnet_fn.runtime.workers import Workers
from resnet_fn.update.state import Optimizer
from resnet_fn.update.step import make_train_step


class MindSporeSide:
    """A MindSpore net, which is trained itself, and put back: it implements `side.Side`.

    `record` calls the methods about in this order; what makes the updates is in `PortRuns`. A
    docstring ends with what must have been called before. A method that is called too early raises
    an error, or runs with dropout. `replay.names_of` calls `forward`, `roles`, `layers` and `state`
    before a recording, so these must work before `session`.

    Dropout is in one of three states:

    - as built: outside of the contexts below, and in `dropping_layer`; once `evaluate_as_built` was
      called, also in each pass in evaluation mode, in the contexts below, too
    - off: in the context `without_dropout`
    - masked: in the context `masked`. Dropout is off, and cells multiply by masks, which are ones
      until the further update with dropout sets them

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
        self.plan = plan
        self.framework = FRAMEWORK
        self.worker_count = workers.size
        self.notes: list[str] = []
        self.unread: set[str] = set()
        self._net = net
        self._given_loss = loss
        self._given_optimizer = optimizer
        self._schedule = schedule
        self._make_step = make_step
        self._build = build
        self._workers = workers
        # Set by `session`:
        self._integers: list[Parameter] = []  # trained ones: frozen until it ends
        # Set by `start`:
        self._state_at_start: Arrays  # the net's state before the first update
        # The net's cells by path, found once: the net itself is trained, and no copies.
        self._cells: dict[str, nn.Cell]
        self._rates: Rates  # of their dropout, as the net was built
        # Set by `evaluate_as_built`:
        # compiled if the step is. None: dropout is off in evaluation mode, too
        self._evaluate_with_dropout: Evaluate | None = None
        # Set by `without_dropout`:
        self._outputs = dict[str, Any]()  # the net's outputs by mode, as examples
        self._loss: Loss | None = None  # the given one, or the plan's for such outputs
        # Set by `prepare_updates`:
        self._runs: PortRuns  # which makes them
        # Set by `masked`:
        self._masks: Masks | None = None  # None outside of its context

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """Check that the workers can share the batches, and keep trained integers as they are, which
        no optimizer takes. MindSpore's generator is not put back.
        """
        names = parameters_by_path(self._net)
        batchnorm = any(name.endswith(STATISTICS_NAMES) for name in names)
        check_shares(self.plan, self.worker_count, batchnorm)
        integers = trained_integers(self._net)
        if integers:
            message = "the port trains integers, which are kept because they have no gradient"
            self.notes.append(f"{message}: {first_few([*integers])}")
        self._integers = [*integers.values()]
        with self._frozen_integers():
            yield

    # The weights, and the rates of dropout:

    def state(self) -> Arrays:
        """Return copies of all parameters and statistics: before `start`, those of the net as
        built.
        """
        return state(self._net)

    def start(self, initial: Arrays, like: Like | None) -> Arrays:
        """Take over the reference's weights, if there are any, and return `initial`. Needs
        `state`.
        """
        if like:
            assign(self._net, like.start)
        self._state_at_start = shared(state(self._net), like.start if like else initial)
        self._cells = dict(self._net.cells_and_names())
        self._rates = Rates(self._cells)
        return initial

    def evaluate_as_built(self) -> None:
        """Evaluate with dropout from now on, compiled if the step is. Needs `start`; call this
        before `without_dropout`.
        """
        net, first = self._net, self.plan.batches[0][0]
        evaluate = evaluation(net, first, first_call(net, first))

        def evaluate_with_dropout(inputs: Tree) -> Arrays:
            with self._dropout_as_built():
                return evaluate(inputs)

        # at once, because compiled code keeps the rates of its first call
        with as_before(net):
            evaluate_with_dropout(first)
        self._evaluate_with_dropout = evaluate_with_dropout

    @contextlib.contextmanager
    def without_dropout(self) -> Iterator[Dropped]:
        """Turn dropout off, and choose the loss by the outputs without it. Needs `start`."""
        with self._rates.off(self._cells):
            self._outputs = self._example_outputs()
            self._loss = self._given_loss or loss_of(self.plan.loss, self._outputs["train"])
            yield self._rates.dropped

    def roles(self) -> dict[str, Any]:
        """Return which parameters are shared, trained or constant in the net as it was given."""
        with requiring_grad(self._integers, True):
            return roles_of(self._net)

    # Forward passes, the layers, and probes:

    def forward(self, inputs: Tree, train: bool) -> Any:
        """Return the net's outputs, and restore its mode and state."""
        with self._dropout_of_mode(train):
            return first_call(self._net, inputs, train)

    def arrays(self, outputs: Any) -> Arrays:
        """Return outputs as arrays by name, and note in `unread` what is not read."""
        self.unread.update(unread(outputs))
        return outputs_of(outputs)

    def loss(self, outputs: Any, labels: Tree) -> np.ndarray:
        """Return the loss of outputs. Needs `without_dropout`, which chooses it."""
        return value_of(self._chosen_loss(), outputs, labels)

    def dropping_layer(
        self, name: str, inputs: np.ndarray | None, only: Only | None, compiled: bool
    ) -> Callable[[], np.ndarray]:
        """Return a function that runs one cell in training mode, with its dropout. Needs `start`."""
        off = partial(self._rates.off, self._cells)
        as_built = partial(self._rates.as_built, self._cells, only)
        if inputs is None:
            with off():
                arguments = inputs_of_layer(self._net, name, self.plan.first[0])
        else:
            arguments = (Tensor(inputs),), {}
        return running_layer(self._cells[name], arguments, off, as_built, compiled, not name)

    def layers(self, mode: str) -> list[Layer]:
        """Run the net on the first micro-batch, and return the executions of its layers.

        "eval" and "train" need nothing (`replay.names_of` calls them first); "dropout" needs
        `updates` in the present context `masked`.
        """
        train = mode != "eval"  # "dropout", too: the masks are in the cells
        with self._dropout_of_mode(train):
            return layers_of(self._net, self.plan.first[0], train)

    def layers_again(self) -> list[Layer]:
        """Return the executions of layers in training mode, with other random numbers."""
        return self.layers("train")

    def probes(self, executions: Sequence[Layer]) -> Probes:
        """Run the net and its layers on probes, uncompiled. Needs `start`."""
        off = partial(self._rates.off, self._cells)
        with self._dropout_of_mode(train=False):
            return probes_of(self._net, self.plan.first[0], executions, off)

    # The optimizer, the masks of dropout, and the updates:

    def prepare_updates(self) -> None:
        """Make what makes the updates, and the given optimizer's functions. Needs
        `without_dropout`.
        """
        loss = self._chosen_loss()
        self._runs = PortRuns(
            self._net,
            self.plan,
            optimizer=self._given_optimizer,
            start=self._state_at_start,
            roles=self.roles,
            make_stepper=partial(self._stepper, loss),
            notes=self.notes,
        )

    def optimizer_settings(self) -> ParameterSettings:
        """Return the settings of the given optimizer, if it is MindSpore's."""
        return settings_of(self._given_optimizer, self._net)

    def optimizer_alone(self, like: Like | None) -> dict[int, Arrays]:
        """Return the changes by the given optimizer on random weights and gradients. Needs
        `prepare_updates`.
        """
        if optimizer := self._runs.given_optimizer:
            with contextlib.suppress(MissingKernelError), explained(self.plan.batches[0][0]):
                return optimizer_alone(self._net, optimizer, like)
        return {}  # no optimizer is given, or it has no kernel

    @contextlib.contextmanager
    def masked(self, masks: Mapping[str, Sequence[np.ndarray]]) -> Iterator[None]:
        """Turn dropout off, and let cells multiply by masks in the further update with dropout.
        Needs `without_dropout`.

        `masks` has one mask for each call, by the cell's path. The cells have ones instead until
        that update sets the masks (`mindspore_step`).
        """
        with self._rates.off(self._cells), with_masks(self._net, masks) as values:
            self._masks = values if masks else None
            try:
                yield
            finally:
                self._masks = None

    def updates(self, like: Like | None) -> Run:
        """Make the updates through the step, and put the net back. Needs `prepare_updates` and the
        context `masked`.
        """
        return self._runs.updates(like)

    # Beside the updates:

    def loss_example(self) -> Any | None:
        """Return outputs of the first micro-batch, or None if the loss is the plan's. Needs
        `without_dropout`.
        """
        return self._outputs["train"] if self._given_loss else None

    def of_all_workers(self, outputs: Arrays) -> Arrays:
        """Return the outputs as one worker would have them."""
        return merged_outputs(outputs, self.plan, self._workers)

    def exact_kernels(
        self, limits: bool = False
    ) -> contextlib.AbstractContextManager[Callable[[], int]]:
        """Return a context in which exp, log, tanh, … compute in float64, uncompiled."""
        return exact_kernels(limits)

    @contextlib.contextmanager
    def holding(self, arrays: Arrays) -> Iterator[None]:
        """Let the net have these arrays inside a `with` block."""
        before = {name: array for name, array in self.state().items() if name in arrays}
        try:
            assign(self._net, arrays)
            yield
        finally:
            assign(self._net, before)

    def updates_by_kernels(
        self, like: Like | None, masks: Mapping[str, Sequence[np.ndarray]]
    ) -> tuple[Run, Run]:
        """Return the updates, uncompiled, as MindSpore's kernels compute them and as exact ones
        do. Needs `prepare_updates`; call this outside of `masked`.
        """
        # each run in a context of its own, because it leaves its masks in the cells
        with self.masked(masks):
            computed = self._runs.by_kernels(like)
        with self.masked(masks), exact_gradients():
            return computed, self._runs.by_kernels(like)

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
        return environment_of_process()

    def source(self, trace: Trace) -> StoredSource:
        """Return what the trace itself answers; `MindSporeSource` can run a port again."""
        return StoredSource(trace)

    # Methods beside the protocol that others call:

    def updates_again_uncompiled(self, like: Like | None) -> Run:
        """Make the updates again without dropout masks, not compiled, for `MindSporeSource`. Call
        this after a recording (record.py).
        """
        with self._frozen_integers(), self._rates.off(self._cells):
            return self._runs.uncompiled(like)

    def code_of_user(self) -> list[Any]:
        """Return the cells and the given functions, whose code may use faulty kernels, for
        `MindSporeSource` and `ways/mindspore_net.py`. Needs `start`.
        """
        parts = (self._given_loss, self._make_step, self._given_optimizer)
        return [*self._cells.values(), *filter(None, parts)]

    def stepper(self) -> MindSporeStepper:
        """Return what makes the updates of a net that is compared with no reference, for
        `ways/mindspore_net.py`. Needs `prepare_updates` and the context `masked`.
        """
        return self._runs.stepper()

    # Methods that only this class calls:

    def _frozen_integers(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which no trained integer requires a gradient."""
        return requiring_grad(self._integers, False)

    def _stepper(self, loss: Loss, optimizer: Optimizer) -> MindSporeStepper:
        """Return what trains the net, with the masks and the evaluation that it has now.

        The loss is that of `prepare_updates`.
        """
        if self._schedule:
            rates = [self._schedule(index) for index in range(len(self.plan.batches))]
        else:
            rates = list(self.plan.rates)
        return MindSporeStepper(
            self._net,
            self.plan,
            rates=rates,
            loss=loss,
            optimizer=optimizer,
            make_step=self._make_step,
            outputs=self._outputs,
            evaluate=self._evaluate_with_dropout,
            masks=self._masks,
            workers=self._workers,
            start=self._state_at_start,
        )

    def _example_outputs(self) -> dict[str, Any]:
        """Return the net's outputs by mode: "eval" on the first batch, and "train" on the first
        micro-batch.
        """
        net, plan = self._net, self.plan
        with self._dropout_of_mode(train=False):
            evaluated = first_call(net, plan.batches[0][0])
        return {"eval": evaluated, "train": first_call(net, plan.first[0], True)}

    def _chosen_loss(self) -> Loss:
        """Return the loss that the updates have."""
        assert self._loss is not None, "no loss is chosen; enter `without_dropout` before"
        return self._loss

    def _dropout_of_mode(self, train: bool) -> contextlib.AbstractContextManager[None]:
        """Return the context of a pass in this mode: with dropout as built if it is in evaluation
        mode and the net drops there, else without a change.
        """
        drops = not train and self._evaluate_with_dropout is not None
        if not drops:
            return contextlib.nullcontext()
        return self._dropout_as_built()

    @contextlib.contextmanager
    def _dropout_as_built(self) -> Iterator[None]:
        """Give the net its dropout rates as built, and let no layer multiply by masks."""
        without_masks = self._masks.lifted() if self._masks else contextlib.nullcontext()
        with self._rates.as_built(self._cells), without_masks:
            yield
