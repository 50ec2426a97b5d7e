"""The PyTorch side: the reference, with what trains it."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from resnet_fn.parity.record.builds import several_builds
from resnet_fn.parity.record.drawing import Drawing
from resnet_fn.parity.record.rates import Rates
from resnet_fn.parity.record.side import Dropped, Measured, Only
from resnet_fn.parity.record.torch_copy import copied
from resnet_fn.parity.record.torch_layers import (
    inputs_of_layer,
    layers_of,
    layers_with_rounding,
    probes_of,
    running_layer,
)
from resnet_fn.parity.record.torch_limits import Limits, not_reached
from resnet_fn.parity.record.torch_module import (
    FRAMEWORK,
    environment_of_process,
    first_call,
    initialise,
    layers_by_path,
    outputs_of,
    state,
    uncompiled,
    with_masks,
)
from resnet_fn.parity.record.torch_optimizer import optimizer_alone, settings_of_optimizer
from resnet_fn.parity.record.torch_prepared import prepare, roles_of_reference
from resnet_fn.parity.record.torch_reference_runs import ReferenceRuns
from resnet_fn.parity.record.torch_run import Loss, MakeOptimizer, Training
from resnet_fn.parity.record.torch_source import Rerun, TorchSource
from resnet_fn.parity.trace.data import ParameterSettings, Probes, Run, Trace
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.like import Like
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.probes import AskedProbes
from resnet_fn.parity.trace.returned import unread
from resnet_fn.parity.trace.source import Masked
from resnet_fn.parity.trace.tree import Arrays, Tree, map_tree, shared
from resnet_fn.runtime.malloc import release_freed


class TorchSide:
    """A torch module, copies of which are trained: it implements `side.Side`.

    `start` makes the reference of the given module: a prepared copy (`prepare`), which is copied
    again for each run. `record` calls the methods about in this order; what runs the updates and
    measures their rounding is in `ReferenceRuns`. A docstring ends with what must have been called
    before. Where a method reads what an earlier one sets, a call that is too early raises an error;
    others that need `without_dropout` run without it, too, but with dropout.

    Dropout is in one of three states:

    - as built: until `without_dropout`, which turns it off in the reference for good; afterwards in
      `dropping_layer` and, once `evaluate_as_built` was called, in each pass in evaluation mode
    - off: in all other copies
    - masked: in the copy of the context `masked`, whose layers multiply by masks

    Args:
        module: the given module. It is not changed; only lazy layers get their sizes.
        plan: the updates.
        loss: a function (outputs, labels) → scalar; by default the plan's.
        make_optimizer: returns an optimizer of a module; by default the plan's.
        build: makes the module again, to record the initial values of several modules.
        drawing: draws the weights, which a small trace does not hold.
    """

    is_reference, worker_count = True, 1

    def __init__(
        self,
        module: torch.nn.Module,
        plan: Plan,
        loss: Loss | None = None,
        make_optimizer: MakeOptimizer | None = None,
        build: Callable[[], torch.nn.Module] | None = None,
        drawing: Drawing | None = None,
    ) -> None:
        # Arrays are copied, because a module may write into its inputs.
        batches = [map_tree(np.array, tuple(batch)) for batch in plan.batches]
        self.plan = dataclasses.replace(plan, batches=batches)
        self.framework = FRAMEWORK
        self.notes: list[str] = []
        self.unread: set[str] = set()
        self._given_module = uncompiled(module)
        self._given_loss = loss
        self._make_optimizer = make_optimizer
        self._build = build
        self._drawing = drawing
        # of functions, and which numbers have reached them
        self._limits = Limits(batches[0], plan.accumulate)
        # Set by `start`:
        self._initial: Arrays  # parameters and statistics of the given module
        self._reference: torch.nn.Module  # the prepared copy
        self._rates: Rates  # of dropout, as the given module has them
        self._training: Training  # how copies of the reference are trained and evaluated
        # Set by `evaluate_as_built`:
        self._evaluates_as_built = False  # whether evaluation has dropout, which else is off
        # Set by `layers`, in training mode without masks:
        self._relu_roundings: list[float] = []  # the rounding of the input of each ReLU
        # Set by `prepare_updates`:
        self._runs: ReferenceRuns  # which makes them
        # Set by `masked`, which is entered once:
        # by the layer's path; kept after the context, for `source`
        self._given_masks: Mapping[str, Sequence[np.ndarray]]
        # a copy that multiplies by these; None outside of the context
        self._masked: torch.nn.Module | None = None

    def session(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context that puts torch's generator back."""
        return torch.random.fork_rng()

    # The weights, and the rates of dropout:

    def state(self) -> Arrays:
        """Return copies of all parameters and statistics of the given module."""
        return self._initial_state(self._given_module)

    def start(self, initial: Arrays, like: Like | None) -> Arrays:
        """Make the reference of the given module. It takes over nothing.

        The result shares the memory of the reference, of which only copies run. Needs `state`.
        """
        prepared = prepare(
            self._given_module, self.plan, self._given_loss, self._make_optimizer, self._drawing
        )
        self._reference = prepared.module
        self._rates = prepared.rates
        self.plan = prepared.plan  # with another loss, if nothing is trained
        self.notes += prepared.notes
        # each evaluation asks `_dropout_of_mode` anew: `evaluate_as_built` may come later
        self._training = Training(
            self.plan, prepared.loss, self._make_optimizer, self._dropout_of_mode
        )
        self._initial = shared(initial, state(self._reference, views=True))
        return self._initial

    def evaluate_as_built(self) -> None:
        """From now on, evaluate with the dropout rates of the given module. Needs `start`."""
        self._evaluates_as_built = True

    @contextlib.contextmanager
    def without_dropout(self) -> Iterator[Dropped]:
        """From now on, the reference has no dropout. The context puts nothing back, because the
        source answers without dropout. Needs `start`.
        """
        self._rates.switch_off(layers_by_path(self._reference))
        yield self._rates.dropped

    def roles(self) -> dict[str, Any]:
        """Return which parameters are shared, trained or constant. Needs `start`."""
        return roles_of_reference(self._given_module, self._reference)

    # Forward passes, the layers, and probes:

    def forward(self, inputs: Tree, train: bool) -> Any:
        """Return the outputs of a copy of the reference. Needs `start`."""
        with self._dropout_of_mode(self._reference, train):
            return first_call(self._reference, inputs, train)

    def arrays(self, outputs: Any) -> Arrays:
        """Return outputs as arrays by name, and note in `unread` what is not read."""
        self.unread.update(unread(outputs))
        return outputs_of(outputs)

    def loss(self, outputs: Any, labels: Tree) -> np.ndarray:
        """Return the loss of outputs, which is computed in their precision, as float64. Needs
        `without_dropout`.
        """
        with self._limits:
            value = self._training.checked_loss(outputs, labels)
        return value.detach().double().numpy()

    def dropping_layer(
        self, name: str, inputs: np.ndarray | None, only: Only | None, compiled: bool
    ) -> Callable[[], np.ndarray]:
        """Return a function that runs one layer in training mode, with the given module's dropout.

        `compiled` has no meaning in PyTorch. Needs `start`.
        """
        if inputs is None:
            arguments = inputs_of_layer(self._reference, name, self.plan.first[0])
        else:
            arguments = (torch.from_numpy(inputs),), {}
        # `running_layer` copies the layer with the rates of this block, after which it runs
        with self._rates.as_built(layers_by_path(self._reference), only):
            return running_layer(self._reference.get_submodule(name), arguments, not name)

    def layers(self, mode: str) -> list[Layer]:
        """Return the executions of layers, with the rounding of their inputs and outputs.

        Of training without masks, the rounding of ReLUs' inputs is kept for `source`. Needs
        `start`; "dropout" needs the context `masked`.
        """
        if mode == "dropout":
            assert self._masked is not None, "`masked` has got no masks"
            return self._layers_with_masks(self._masked)
        train = mode == "train"
        with self._dropout_of_mode(self._reference, train):
            layers, roundings = layers_with_rounding(
                self._reference, self.plan.first[0], train, self.plan.rounding_precision
            )
        if train:
            self._relu_roundings = roundings
        return layers

    def layers_again(self) -> list[Layer]:
        """Return the executions of layers in training mode, with other random numbers. Needs
        `start`.
        """
        # without rounding: only what repeats is looked for
        return layers_of(self._reference, self.plan.first[0], True)

    def probes(self, executions: Sequence[Layer]) -> Probes:
        """Run a copy and its layers on probes, because a layer may store its inputs. Needs `start`."""
        module = copied(self._reference)
        with self._limits:
            return self._probes(module, executions)

    # The optimizer, the masks of dropout, and the updates:

    def prepare_updates(self) -> None:
        """Make `ReferenceRuns`, which makes the updates with a new optimizer for each run. Needs
        `without_dropout`.
        """
        self._runs = ReferenceRuns(
            self._reference,
            self._training,
            roles=self.roles(),
            initial=self._initial,
            notes=self.notes,
        )

    def optimizer_settings(self) -> ParameterSettings:
        """Return the settings of the optimizer of a copy of the reference. Needs `start`."""
        return settings_of_optimizer(self._reference, self.plan.optimizer, self._make_optimizer)

    def optimizer_alone(self, like: Like | None) -> dict[int, Arrays]:
        """Return the changes by the optimizer of a copy on random weights and gradients.

        A reference repeats nothing, so `like` is not used. Needs `start`.
        """
        with torch.random.fork_rng():  # an optimizer may draw random numbers
            alone = optimizer_alone(self._reference, self.plan.optimizer, self._make_optimizer)
        release_freed()  # probes copy the module again
        return alone

    @contextlib.contextmanager
    def masked(self, masks: Mapping[str, Sequence[np.ndarray]]) -> Iterator[None]:
        """Let a copy multiply by masks in the further update with dropout, which the source may
        make again (`_with_fewer_masks`). Needs `without_dropout`.
        """
        self._given_masks = masks
        self._masked = with_masks(self._reference, masks) if masks else None
        try:
            yield
        finally:
            self._masked = None

    def updates(self, like: Like | None) -> Run:
        """Make the updates in float32, and in float64 for `measured`. Needs `prepare_updates` and
        the context `masked`.
        """
        return self._runs.updates(self._masked, self._limits)

    # Beside the updates:

    def loss_example(self) -> Any:
        """Return outputs in the structure that the loss takes. Needs `without_dropout`."""
        return self.forward(self.plan.first[0], True)

    def of_all_workers(self, outputs: Arrays) -> Arrays:
        """Return the outputs: there is one worker."""
        return outputs

    def exact_kernels(
        self, limits: bool = False
    ) -> contextlib.AbstractContextManager[Callable[[], int]]:
        """Return a context without effect: PyTorch's kernels are accurate."""
        return contextlib.nullcontext(lambda: 0)

    def holding(self, arrays: Arrays) -> contextlib.AbstractContextManager[Any]:
        """Return a context without effect: PyTorch's kernels are accurate."""
        return contextlib.nullcontext()

    def updates_by_kernels(
        self, like: Like | None, masks: Mapping[str, Sequence[np.ndarray]]
    ) -> None:
        """Return None: PyTorch's kernels are accurate."""

    def tensor(self, array: Any) -> torch.Tensor:
        """Return an array as a tensor that shares its memory."""
        return torch.from_numpy(array)

    def measured(self) -> Measured:
        """Return the rounding of the updates, what ties change, and which integers change. Needs
        `updates`; call this once.
        """
        return self._runs.measured()

    def limits(self) -> list[str]:
        """Return the constant arrays that have no random numbers in any run, counters in attributes
        that change no output, and what `not_reached` finds. Needs `updates`.
        """
        loss = self._training.loss
        return [
            *self._runs.not_exercised,
            *not_reached(self._reference, self.plan, loss, self._limits),
        ]

    def builds(self) -> list[Arrays]:
        """Return the initial values of several modules."""
        return several_builds(self._build, self._initial_state, {torch: "manual_seed"})

    def environment(self) -> dict[str, str]:
        """Return versions, threads and kernels of this process."""
        return environment_of_process()

    def source(self, trace: Trace) -> TorchSource:
        """Return the live reference, which answers in float32. Needs `updates` and
        `layers("train")`: without the latter, no ties are flipped.
        """
        in_half = self.plan.rounding_precision == "float16"
        executions = trace.layers["eval"]
        return TorchSource(
            self._reference,
            make_rerun=None if in_half else partial(Rerun, self._reference, self._training),
            changes=self._runs.changes,
            of_relus=[] if in_half else self._relu_roundings,
            probes=trace.probes or None,
            compute=lambda module, asked: self._probes(module, executions, asked),
            with_fewer_masks=self._with_fewer_masks,
        )

    # Methods that only this class calls:

    def _initial_state(self, module: torch.nn.Module) -> Arrays:
        """Return a module's parameters and statistics, after lazy layers have got their sizes."""
        module = uncompiled(module)
        initialise(module, self.plan.batches[0][0])
        return state(module)

    def _dropout_of_mode(
        self, module: torch.nn.Module, train: bool = False
    ) -> contextlib.AbstractContextManager[None]:
        """Return a context in which a copy of the reference has the dropout rates of this mode."""
        if train or not self._evaluates_as_built:
            return contextlib.nullcontext()
        return self._rates.as_built(layers_by_path(module))

    def _probes(
        self,
        module: torch.nn.Module,
        executions: Sequence[Layer],
        asked: AskedProbes | None = None,
    ) -> Probes:
        """Run a copy of the reference and its layers on all probes, or on those asked for."""

        def without_dropout(copy: torch.nn.Module) -> contextlib.AbstractContextManager[None]:
            return self._rates.off(layers_by_path(copy))

        with self._dropout_of_mode(module):
            return probes_of(module, self.plan.first[0], executions, without_dropout, asked)

    def _layers_with_masks(self, masked: torch.nn.Module) -> list[Layer]:
        """Return the executions of layers of a copy with masks in training mode."""
        precision = self.plan.rounding_precision
        layers, _ = layers_with_rounding(masked, self.plan.first[0], True, precision)
        return layers

    def _with_fewer_masks(self, left: Sequence[str]) -> Masked:
        """Return the update with masks again, without those of `left` (`Source.with_fewer_masks`)."""
        masked = with_masks(self._reference, self._given_masks, left)
        made, rounding = self._runs.replace_masks(masked)
        return Masked(made, self._layers_with_masks(masked), rounding)
