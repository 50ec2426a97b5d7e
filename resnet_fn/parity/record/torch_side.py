"""The PyTorch side: the reference, with what trains it."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from resnet_fn.config.wording import first_few
from resnet_fn.parity.record.builds import several_builds
from resnet_fn.parity.record.common import what_failed
from resnet_fn.parity.record.drawing import Drawing
from resnet_fn.parity.record.rates import Rates
from resnet_fn.parity.record.side import Dropped, Measured, Only
from resnet_fn.parity.record.torch_copy import copied
from resnet_fn.parity.record.torch_layers import (
    inputs_of_layer,
    layers_of,
    layers_with_rounding,
    output_of,
    probes_of,
    roles_of,
)
from resnet_fn.parity.record.torch_limits import Limits
from resnet_fn.parity.record.torch_module import (
    FRAMEWORK,
    first_call,
    initialise,
    not_given,
    outputs_of,
    state,
    tensors,
    uncompiled,
    with_masks,
)
from resnet_fn.parity.record.torch_optimizer import optimizer_alone, settings_of_optimizer
from resnet_fn.parity.record.torch_prepared import (
    choose_loss,
    freeze_as_optimizer,
    prepare_reference,
)
from resnet_fn.parity.record.torch_reference_runs import ReferenceRuns
from resnet_fn.parity.record.torch_run import (
    Loss,
    MakeOptimizer,
    Training,
    load,
    outputs_outside_loss,
    scalar,
)
from resnet_fn.parity.record.torch_source import Rerun, TorchSource
from resnet_fn.parity.trace.data import IDLE_COUNTER, ParameterSettings, Probes, Run, Trace
from resnet_fn.parity.trace.environment import environment
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.like import Like
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.probes import AskedProbes
from resnet_fn.parity.trace.returned import unread
from resnet_fn.parity.trace.source import Masked
from resnet_fn.parity.trace.tree import Arrays, Tree, map_tree


class TorchSide:
    """A torch module, copies of which are trained: it implements `side.Side`.

    The copies have no dropout, and `prepare_reference` randomises their initial statistics and
    parameters. `record` calls the methods about in this order; what runs the updates and measures
    their rounding is in `ReferenceRuns`. Its contexts are one-way: `without_dropout` and
    `masked` put nothing back, because the source answers with copies that are left so.

    Args:
        module: the reference, which is not changed; only lazy layers get their sizes.
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
        self._module = uncompiled(module)  # as it was given: it gets lazy sizes, else it is copied
        self._custom_loss, self._make_optimizer, self._build = loss, make_optimizer, build
        self._drawing = drawing
        # in which rounding is measured
        self._precision = "float16" if plan.precision == "fp16" else "float32"
        self._limits = Limits()  # of functions, and which numbers have reached them
        self._of_relus: list[float] = []  # the rounding of the input of each ReLU
        self._evaluates_as_built = False  # whether evaluation has dropout, which else is off
        # Set by `start`:
        self._initial: Arrays  # parameters and statistics as the module was built
        self._reference: torch.nn.Module  # the prepared copy, of which copies are trained
        self._rates: Rates  # of dropout, as the module was built
        self._training: Training  # how the copies are trained and evaluated
        # Set by `masked` and `updates`:
        self._given_masks: Mapping[str, Sequence[np.ndarray]]  # by the layer's path
        self._masked_copy: torch.nn.Module | None = None  # a copy whose layers multiply by these
        self._runs: ReferenceRuns  # which has made the updates

    def session(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context that puts torch's generator back."""
        return torch.random.fork_rng()

    def state(self) -> Arrays:
        """Return the initial parameters and statistics."""
        return self._built(self._module)

    def start(self, initial: Arrays, like: Like | None) -> None:
        """Copy the module as it was built, choose the loss, and prepare the copy.

        A reference takes over nothing.
        """
        self._initial = initial
        self._reference = copied(self._module).float()
        self._rates = Rates(self._layers())
        loss, self.plan, untrained_note = choose_loss(
            self._reference, self.plan, self._custom_loss, self._make_optimizer
        )
        self._training = Training(self.plan, loss, self._make_optimizer, self._rates_in)
        with self._rates.off(self._layers()):
            changed_note = prepare_reference(
                self._reference, self.plan.batches[0][0], self.plan.seed
            )
        self.notes += filter(None, (untrained_note, changed_note))
        if self._make_optimizer:
            freeze_as_optimizer(self._reference, self._make_optimizer)
        if self._drawing:
            roles = self.roles()
            arrays = state(self._reference)
            drawn = self._drawing.weights(arrays, roles["trainable"], roles["tied"])
            load(self._reference, drawn)

    def evaluate_as_built(self) -> None:
        """From now on, evaluate with the dropout rates of the module as it was built."""
        self._evaluates_as_built = True

    @contextlib.contextmanager
    def without_dropout(self) -> Iterator[Dropped]:
        """From now on, run a copy without dropout."""
        self._rates.switch_off(self._layers())
        yield self._rates.dropped

    def roles(self) -> dict[str, Any]:
        """Return which parameters are shared, trained or constant.

        All are as in the given module, except what is trained: an optimizer may have frozen
        parameters of the copy (`freeze_as_optimizer`).
        """
        return roles_of(self._module) | {"trainable": roles_of(self._reference)["trainable"]}

    def forward(self, inputs: Tree, train: bool) -> Any:
        """Return the outputs of a copy."""
        with self._rates_in(self._reference, train):
            return first_call(self._reference, inputs, train)

    def arrays(self, outputs: Any) -> Arrays:
        """Return outputs as arrays by name."""
        self.unread.update(unread(outputs))
        return outputs_of(outputs)

    def loss(self, outputs: Any, labels: Tree) -> np.ndarray:
        """Return the loss of outputs, which is computed in their precision, as float64."""
        try:
            with self._limits:
                value = self._training.loss(outputs, tensors(labels, torch.float32))
        except Exception as error:
            given = {"outputs": outputs_of(outputs), "labels": labels}
            fix = "give labels that it takes, or --loss"
            raise what_failed("loss of the reference", given, error, fix) from error
        return scalar(value).detach().double().numpy()

    def dropping_layer(
        self, name: str, inputs: np.ndarray | None, only: Only | None, compiled: bool
    ) -> Callable[[], np.ndarray]:
        """Return a function that runs one layer in training mode, with the module's dropout."""
        with self._rates.as_built(self._layers(), only):
            layer = copied(self._reference.get_submodule(name)).train()
        if inputs is None:
            given = inputs_of_layer(self._reference, name, self.plan.first[0])
        else:
            given = (torch.from_numpy(inputs),), {}
        return partial(output_of, layer, given)

    def layers(self, mode: str) -> list[Layer]:
        """Return the executions of layers, with the rounding of their inputs and outputs."""
        module = self._masked_copy if mode == "dropout" and self._masked_copy else self._reference
        inputs, train = self.plan.first[0], mode != "eval"
        with self._rates_in(module, train):
            layers, of_relus = layers_with_rounding(module, inputs, train, self._precision)
        if mode == "train":
            self._of_relus = of_relus
        return layers

    def layers_again(self) -> list[Layer]:
        """Return the executions of layers in training mode, with other random numbers."""
        return layers_of(self._reference, self.plan.first[0], True)

    def probes(self, executions: Sequence[Layer]) -> Probes:
        """Run a copy and its layers on probes, because a layer may store its inputs."""
        module = copied(self._reference)
        with self._limits:
            return self._probes(executions, module)

    def optimizer_settings(self) -> ParameterSettings:
        """Return the settings of the optimizer of a copy."""
        return settings_of_optimizer(self._reference, self.plan.optimizer, self._make_optimizer)

    def optimizer_alone(self, like: Like | None) -> dict[int, Arrays]:
        """Return the changes by the optimizer of a copy on random weights and gradients."""
        with torch.random.fork_rng():  # an optimizer may draw random numbers
            return optimizer_alone(self._reference, self.plan.optimizer, self._make_optimizer)

    @contextlib.contextmanager
    def masked(self, masks: Mapping[str, Sequence[np.ndarray]]) -> Iterator[None]:
        """From now on, let a copy multiply by masks in the further update with dropout, which the
        source may make again (`_with_fewer_masks`).
        """
        self._given_masks = masks
        self._masked_copy = with_masks(self._reference, masks) if masks else None
        yield

    def updates(self, like: Like | None) -> Run:
        """Make the updates in float32, and in float64 for `measured`."""
        self._runs = ReferenceRuns(
            self._reference,
            self._training,
            self._masked_copy,
            self.roles(),
            self._initial,
            self.notes,
        )
        return self._runs.updates(self._limits)

    def loss_example(self) -> Any:
        """Return outputs in the structure that the loss takes."""
        return first_call(self._reference, self.plan.first[0], True)

    def of_all_workers(self, outputs: Arrays) -> Arrays:
        """Return the outputs: there is one worker."""
        return outputs

    def exact_kernels(
        self, limits: bool = False
    ) -> contextlib.AbstractContextManager[Callable[[], int]]:
        """Return a context without effect: PyTorch's kernels are accurate."""
        return contextlib.nullcontext(lambda: 0)

    def tensor(self, array: Any) -> torch.Tensor:
        """Return an array as a tensor that shares its memory."""
        return torch.from_numpy(array)

    def measured(self) -> Measured:
        """Return the rounding of the updates, what ties change, and which integers change."""
        return self._runs.measured()

    def limits(self) -> list[str]:
        """Return the constant arrays that have no random numbers in any run, counters in attributes
        that change no output, the limits that no number of the updates and probes has reached, the
        outputs that the loss does not depend on, and the arguments that are not given.
        """
        counters = [f"{name}: {IDLE_COUNTER}" for name in self._runs.idle_counters]
        outside = []
        with contextlib.suppress(Exception):  # the verdict does not need this line
            outside = outputs_outside_loss(self._reference, self.plan.first, self._training.loss)
        if outside:
            words = "the loss does not depend on these outputs, so their gradients are not compared"
            counters.append(f"{words}: {first_few(outside)}")
        left = not_given(self._reference, self.plan.first[0])
        lines = [f"arguments that are not given: {', '.join(left)}"] if left else []
        return [*self._runs.constants, *counters, *self._limits.lines, *lines]

    def builds(self) -> list[Arrays]:
        """Return the initial values of several modules."""
        return several_builds(self._build, self._built, {torch: "manual_seed"})

    def environment(self) -> dict[str, str]:
        """Return versions, threads and kernels of this process."""
        return environment(
            device="CPU",
            threads=torch.get_num_threads(),
            deterministic="ON" if torch.are_deterministic_algorithms_enabled() else "OFF",
            HF32="off" if torch.get_float32_matmul_precision() == "highest" else "as it comes",
            kernels=torch.backends.cpu.get_cpu_capability(),
        )

    def source(self, trace: Trace) -> TorchSource:
        """Return the live reference, which answers in float32."""
        in_half = self._precision == "float16"
        return TorchSource(
            self._reference,
            make_rerun=None if in_half else partial(Rerun, self._reference, self._training),
            changes=self._runs.changes,
            of_relus=[] if in_half else self._of_relus,
            probes=trace.probes or None,
            compute=partial(self._probes, trace.layers["eval"]),
            with_fewer_masks=self._with_fewer_masks,
        )

    # Methods that are not of the protocol.

    def _layers(self) -> dict[str, torch.nn.Module]:
        """Return the prepared copy's layers by path. A forward pass may exchange some."""
        return dict(self._reference.named_modules())

    def _built(self, module: torch.nn.Module) -> Arrays:
        module = uncompiled(module)
        initialise(module, self.plan.batches[0][0])
        return state(module)

    def _rates_in(
        self, module: torch.nn.Module, train: bool = False
    ) -> contextlib.AbstractContextManager[None]:
        """Return a context in which a copy has the dropout rates of this mode."""
        if train or not self._evaluates_as_built:
            return contextlib.nullcontext()
        return self._rates.as_built(dict(module.named_modules()))

    def _probes(
        self,
        executions: Sequence[Layer],
        module: torch.nn.Module,
        asked: AskedProbes | None = None,
    ) -> Probes:
        def without_dropout(copy: torch.nn.Module) -> contextlib.AbstractContextManager[None]:
            return self._rates.off(dict(copy.named_modules()))

        with self._rates_in(module):
            return probes_of(module, self.plan.first[0], executions, without_dropout, asked)

    def _with_fewer_masks(self, left: Sequence[str]) -> Masked:
        """Return the update with masks (`Source.with_fewer_masks`)."""
        self._masked_copy = with_masks(self._reference, self._given_masks, left)
        made, rounding = self._runs.with_masks(self._masked_copy)
        return Masked(made, self.layers("dropout"), rounding)
