"""The MindSpore side: the port, with what trains it."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor, nn

# also the base of mint.optim
from mindspore.experimental.optim.optimizer import Optimizer as TorchLike

from resnet_fn.parity.record.builds import several_builds
from resnet_fn.parity.record.common import check_scalar, loss_of_logits
from resnet_fn.parity.record.layer_settings import without_dropout
from resnet_fn.parity.record.masked_cells import masked
from resnet_fn.parity.record.mindspore_cell import (
    MissingKernelError,
    assign,
    compiler,
    explained,
    first_call,
    outputs_of,
    parameters_by_path,
    state,
)
from resnet_fn.parity.record.mindspore_layers import layers_of, probes_of, roles_of
from resnet_fn.parity.record.mindspore_optimizer import (
    CustomOptimizer,
    of_mindspore,
    optimizer_alone,
    plan_optimizer,
    settings_of,
)
from resnet_fn.parity.record.mindspore_recorders import Loss
from resnet_fn.parity.record.mindspore_step import MakeStep, MindSporeStepper
from resnet_fn.parity.record.side import Dropped
from resnet_fn.parity.record.updates import record_run
from resnet_fn.parity.trace.data import (
    STATISTICS,
    Changing,
    ParameterSettings,
    Probes,
    Rounding,
    Run,
    Trace,
)
from resnet_fn.parity.trace.environment import environment
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.like import Like
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.ranks import check_shares
from resnet_fn.parity.trace.returned import unread
from resnet_fn.parity.trace.source import StoredSource
from resnet_fn.parity.trace.tree import Arrays, Tree, map_tree, split
from resnet_fn.runtime import process
from resnet_fn.runtime.workers import Workers, sum_over_ranks
from resnet_fn.update.loss import make_loss
from resnet_fn.update.state import Optimizer
from resnet_fn.update.step import make_train_step


class MindSporeSide:
    """A MindSpore net, which is trained itself.

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
        self.plan, self.framework = plan, f"MindSpore {mindspore.__version__}"
        self.workers, self.notes = workers.size, list[str]()
        self.unread = set[str]()
        self._net, self._custom_loss, self._optimizer = net, loss, optimizer
        self._schedule, self._make_step = schedule, make_step
        self._build, self._workers = build, workers
        self._set_masks: Callable[[], None] | None = None

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """Check that the workers can share the batches. MindSpore's generator is not put back."""
        names = parameters_by_path(self._net)
        batchnorm = any(name.endswith(STATISTICS) for name in names)
        check_shares(self.plan, self.workers, batchnorm)
        yield

    def state(self) -> Arrays:
        """Return copies of all parameters and statistics of the net."""
        return state(self._net)

    def start(self, like: Like | None) -> None:
        """Take over the reference's weights, if there are any."""
        if like:
            assign(self._net, like.start)
        self._start = state(self._net)

    @contextlib.contextmanager
    def without_dropout(self) -> Iterator[Dropped]:
        """Turn dropout off, and choose the loss by the structure of the outputs."""
        net, plan = self._net, self.plan
        with without_dropout(self._cells.items()) as dropped:
            self._outputs = {
                "eval": first_call(net, plan.batches[0][0]),
                "train": first_call(net, plan.first[0], True),
            }
            of_plan = make_loss(plan.loss.smoothing, plan.loss.name, plan.loss.over)
            self._loss = self._custom_loss or loss_of_logits(
                "the net", self._outputs["train"], of_plan
            )
            yield dropped

    @cached_property
    def _cells(self) -> dict[str, nn.Cell]:
        return dict(self._net.cells_and_names())

    def roles(self) -> dict[str, Any]:
        """Return which parameters are shared, trained or constant."""
        return roles_of(self._net)

    def draws(self) -> tuple[()]:
        """Return (): the state of MindSpore's generator is not known."""
        return ()

    def forward(self, inputs: Tree, train: bool) -> Any:
        """Return the net's outputs, and restore its mode and statistics."""
        return first_call(self._net, inputs, train)

    def arrays(self, outputs: Any) -> Arrays:
        """Return outputs as arrays by name."""
        self.unread |= {*unread(outputs)}
        return outputs_of(outputs)

    @process.ending_mixed_precision()
    def loss(self, outputs: Any, labels: Tree) -> np.ndarray:
        """Return the loss of outputs."""
        value = self._loss(outputs, map_tree(Tensor, labels))
        check_scalar("the net", value, Tensor)
        return value.numpy()

    def dropping_layer(self, name: str, ones: np.ndarray) -> np.ndarray:
        """Run one cell in training mode."""
        return outputs_of(first_call(self._cells[name], ones, True))["logits"]

    def layers(self, mode: str) -> list[Layer]:
        """Run the net on the first micro-batch, and return the executions of its layers."""
        return layers_of(self._net, self.plan.first[0], mode != "eval")

    def layers_again(self) -> list[Layer]:
        """Return the executions of layers in training mode, with other random numbers."""
        return self.layers("train")

    def probes(self, executions: Sequence[Layer]) -> Probes:
        """Run the net and its layers on probes, uncompiled."""
        return probes_of(self._net, self.plan.first[0], executions)

    def optimizer_settings(self) -> ParameterSettings:
        """Return the settings of the user's optimizer, if it is MindSpore's."""
        return settings_of(self._optimizer, self._net)

    @cached_property
    def _custom_optimizer(self) -> Optimizer | None:
        of_framework = isinstance(self._optimizer, nn.Optimizer | TorchLike)
        return of_mindspore(self._optimizer, self._net) if of_framework else self._optimizer

    def optimizer_alone(self, like: Like | None) -> dict[int, Arrays]:
        """Return the changes by the user's optimizer on random weights and gradients."""
        alone: dict[int, Arrays] = {}
        custom = self._custom_optimizer
        with contextlib.suppress(MissingKernelError), explained(self.plan.batches[0][0]):
            alone = optimizer_alone(self._net, custom, like) if custom else {}
        return alone

    @contextlib.contextmanager
    def masked(self, masks: Mapping[str, Sequence[np.ndarray]]) -> Iterator[None]:
        """Turn dropout off, and let cells multiply by masks in the further update with dropout."""
        with without_dropout(self._cells.items()), masked(self._net, masks) as set_masks:
            self._set_masks = set_masks if masks else None
            yield

    def updates(self, like: Like | None) -> Run:
        """Make the updates through the step, and put the weights back."""
        net, plan, custom, schedule = self._net, self.plan, self._custom_optimizer, self._schedule
        updates = range(len(plan.batches))
        rates = [schedule(update) for update in updates] if schedule else list(plan.rates)
        optimizer, decays = (custom, "") if custom else plan_optimizer(net, plan.optimizer, like)
        stepper = MindSporeStepper(
            net,
            plan,
            rates,
            self._loss,
            optimizer,
            self._make_step,
            self._outputs,
            self._set_masks,
            self._workers,
        )
        last = like.last if like else {}
        try:
            run = record_run(stepper, plan, rates, last)
        except ValueError:
            if not (compiler() and self._sizes_vary()):
                raise
            assign(net, self._start)
            stepper.record_outputs_apart()
            run = record_run(stepper, plan, rates, last)
        assign(net, self._start)
        if not run.after:
            name = type(self._optimizer).__name__ if self._optimizer else plan.optimizer.name
            self.notes.append(f"updates are not compared: {name} has no kernel on this device")
        self.notes += [decays] if decays else []
        return run

    def _sizes_vary(self) -> bool:
        """Return whether the sizes of the outputs in training mode depend on the batch."""
        sizes = []
        for inputs, _ in self.plan.batches:
            part = split(inputs, self.plan.accumulate)[0]
            outputs = outputs_of(first_call(self._net, part, True))
            sizes.append({name: one.shape for name, one in outputs.items()})
        return any(one != sizes[0] for one in sizes)

    def loss_example(self) -> Any | None:
        """Return outputs of the first micro-batch, or None if the loss is the plan's."""
        return self._outputs["train"] if self._custom_loss else None

    def of_all_workers(self, outputs: Arrays) -> Arrays:
        """Return the last worker's outputs or, without micro-batches, the outputs of the whole
        batch, as `ranks.merge` does.
        """
        if self.workers == 1:
            return outputs
        whole, merged = self.plan.accumulate % self.workers > 0, {}
        for name, array in outputs.items():
            rows = np.zeros((self.workers, *array.shape), np.float32)
            rows[self._workers.rank] = array
            rows = sum_over_ranks(rows, self._workers).astype(array.dtype)
            merged[name] = np.concatenate(rows) if whole and array.ndim else rows[-1]
        return merged

    def tensor(self, array: Any) -> Tensor:
        """Return an array as a tensor."""
        return Tensor(array)

    def rounding(self, run: Run) -> Rounding:
        """Return {}: rounding is measured of the reference."""
        return {}

    def changing(self, run: Run) -> Changing:
        """Return {}: it is measured of the reference."""
        return {}

    def limits(self) -> list[str]:
        """Return []: limits are noted of the reference."""
        return []

    def builds(self) -> list[Arrays]:
        """Return the initial values of several nets."""
        if self._build is None:
            return []
        return several_builds(self._build, state, {mindspore: "set_seed"})

    def environment(self) -> dict[str, str]:
        """Return versions, device and mode of this process."""
        mode = "graph" if compiler() else "pynative"
        deterministic = process.context("deterministic")
        return environment(deterministic=deterministic, mode=mode, **process.started)

    def source(self, trace: Trace) -> StoredSource:
        """Return what the trace itself answers: nothing more is measured of a port."""
        return StoredSource(trace)
