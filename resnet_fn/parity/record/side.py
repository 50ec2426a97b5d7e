"""What a framework's side can do, so that `record` is written once."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from typing import Any, Protocol

import numpy as np

from resnet_fn.parity.trace.data import (
    Changing,
    ParameterSettings,
    Probes,
    Rounding,
    Run,
    Ties,
    Trace,
)
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.like import Like
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.source import Source
from resnet_fn.parity.trace.tree import Arrays, Tree

Dropped = list[tuple[str, str, float]]  # (layer's path, attribute, dropout probability)

# (layer's path, attribute) of each dropout that is on; "" for all attributes of the layer
Only = Collection[tuple[str, str]]


@dataclasses.dataclass(frozen=True)
class Step:
    """What one update computed. Of the fields after `made`, those of update 1 are kept (`updates.py`).

    A new field needs a default: a stepper leaves out what its updates do not have.
    """

    loss: float  # the mean over micro-batches, before the update
    norm: float  # the global norm of the gradients before clipping
    outputs: Arrays  # of the last micro-batch
    made: bool = True  # whether the weights were updated: the optimizer may have no kernel
    # the mean over micro-batches before clipping, if `Stepper.shows_gradients`
    gradients: Arrays = field(default_factory=dict)
    clipped: Arrays = field(default_factory=dict)
    no_gradient: list[str] = field(default_factory=list)  # `Run.no_gradient`
    # the gradients of each micro-batch, if there are several
    parts: list[Arrays] = field(default_factory=list)
    # the gradients that the all-reduce of several workers took and returned
    sent: Arrays = field(default_factory=dict)
    received: Arrays = field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Measured:
    """What rounding may change in the results of updates, as fields of a `Trace`."""

    rounding: Rounding = field(default_factory=dict)
    ties: Ties | None = None
    changing: Changing = field(default_factory=dict)


class Stepper(Protocol):
    """Trains a net for a few updates. It is built once: compiling takes longer than the updates."""

    # whether an update shows gradients before clipping; else compiled code clips them
    shows_gradients: bool
    rejects: str  # why the last run `with_constants` failed

    def evaluate(self, inputs: Tree) -> Arrays:
        """Return the outputs in evaluation mode."""

    def state(self) -> Arrays:
        """Return copies of all parameters and statistics."""

    def alone(self) -> tuple[list[float], Arrays]:
        """Return the losses and the statistics of one of several workers (`Run.own_losses`).

        With one worker, both are empty.
        """

    def update(self, index: int, rate: float) -> Step:
        """Make an update with the batch of this index, and return what it computed."""

    def last_outputs(self, weights: Arrays, after: Arrays) -> Arrays:
        """Return the outputs of the first batch in evaluation mode, with these weights and the
        present other state.

        `after` is the present state, which is kept. {} keeps the weights, too.
        """

    def moved(self) -> dict[str, str]:
        """Return the buffers and numbers that the updates have changed (`Run.moved`)."""

    def average(self) -> Arrays:
        """Return the moving average after the last update, or {}. Call `update` no more."""

    def on_batch(self, index: int, start: Arrays) -> Run:
        """Run forward and backward on a batch with the weights before any update."""

    def with_constants(self, start: Arrays, drawn: Arrays) -> list[Run]:
        """Return [forward passes of the first batch with the arrays `drawn` in `start`], or [] if
        the reference fails.

        A port that fails has no outputs. Then, `rejects` has the reason.
        """

    def with_masks(self, start: Arrays) -> list[Run]:
        """Return [update 1 with dropout masks], or [] if no layer gets a mask."""


class Side(Protocol):
    """The port or the reference: a net with what trains it.

    `record` has the order of the calls. A docstring ends with what must have been called before
    ("Needs"); methods without this need nothing. After `record`, the net has the weights that it
    had when the first update began.

    The port is trained itself, so its contexts restore it. Of the reference copies are trained, so
    what `without_dropout` does to the one that they are made from stays.
    """

    plan: Plan
    framework: str  # "PyTorch 2.13.0"
    # Whether it is the reference, whose rounding is measured and whose loss is run alone in any
    # case.
    is_reference: bool
    worker_count: int  # how many workers share each batch
    notes: list[str]  # changes that made the sides comparable, a line each
    unread: set[str]  # what `arrays` could not read (`returned.unread`)

    def session(self) -> AbstractContextManager[Any]:
        """Return the context of a recording.

        At its end, PyTorch's random generator is put back, but MindSpore's is not.
        """

    # The weights, and the rates of dropout:

    def state(self) -> Arrays:
        """Return copies of all parameters and statistics of the net as it was built. Call this
        before `start`.
        """

    def start(self, initial: Arrays, like: Like | None) -> Arrays:
        """Take over the reference's weights, if there are any. `initial` is the state before.

        Returns the same numbers as `initial`, which may share memory that the side never writes.
        Needs `state`.
        """

    def evaluate_as_built(self) -> None:
        """From now on, evaluate with the dropout rates of the net as it was built, also where
        dropout is off. Needs `start`; call this before `without_dropout`.
        """

    def without_dropout(self) -> AbstractContextManager[Dropped]:
        """Return a context in which dropout is off, and which lists the dropouts.

        After the context, the port drops again. Needs `start`.
        """

    def roles(self) -> Mapping[str, Any]:
        """Return which parameters are shared, trained or constant, as fields of a `Trace`. Needs
        `start`, of the reference.
        """

    # Forward passes, the layers, and probes:

    def forward(self, inputs: Tree, train: bool) -> Any:
        """Return the net's outputs as the framework's tensors, and restore its statistics. Needs
        `start`, of the reference.
        """

    def arrays(self, outputs: Any) -> Arrays:
        """Return outputs as arrays by name, and note in `unread` what is not read."""

    def loss(self, outputs: Any, labels: Tree) -> np.ndarray:
        """Return the loss of `forward`'s outputs. Needs `without_dropout`."""

    def dropping_layer(
        self, name: str, inputs: np.ndarray | None, only: Only | None, compiled: bool
    ) -> Callable[[], np.ndarray]:
        """Return a function that runs one layer in training mode, with random dropout.

        Without `inputs`, the layer takes those that the net gives it. `only` has the only dropouts
        that are on; None: all are. `compiled` is whether the layer runs as the training step
        runs it. Needs `start`.
        """

    def layers(self, mode: str) -> list[Layer]:
        """Run the net on the first micro-batch, and return the executions of its layers.

        `mode` is "eval", "train", or "dropout" for training with the masks of `masked`. The
        reference keeps the rounding that it measures in "train", which `source` needs. Needs
        `start`, of the reference; "dropout" needs the context `masked` and, of the port, `updates`
        in it.
        """

    def layers_again(self) -> list[Layer]:
        """Return the executions of layers in training mode, with other random numbers. Needs
        `start`, of the reference.
        """

    def probes(self, executions: Sequence[Layer]) -> Probes:
        """Run the net and its layers on probes (changed inputs). Needs `start`."""

    # The optimizer, the masks of dropout, and the updates:

    def prepare_updates(self) -> None:
        """Make what makes the updates, of the port with the given optimizer.

        Let the net and its loss run before, so that one that fails is named before an optimizer
        that is rejected (ValueError). Needs `without_dropout`.
        """

    def optimizer_settings(self) -> ParameterSettings:
        """Return the optimizer's settings, by setting and then by parameter.

        {} if they are not known, or if the port's optimizer is the plan's. Needs `start`, of the
        reference.
        """

    def optimizer_alone(self, like: Like | None) -> dict[int, Arrays]:
        """Return the changes by the optimizer alone (`Trace.optimizer_alone`). Needs
        `prepare_updates`.
        """

    def masked(self, masks: Mapping[str, Sequence[np.ndarray]]) -> AbstractContextManager[Any]:
        """Return a context in which dropout is off, and layers can multiply by masks instead.

        `masks` has one mask for each call, by the layer's path. Needs `without_dropout`.
        """

    def updates(self, like: Like | None) -> Run:
        """Make the plan's updates, and put the weights back. Needs `prepare_updates` and the context
        `masked`.
        """

    # Beside the updates:

    def loss_example(self) -> Any | None:
        """Return outputs in the structure that the loss takes, or None: it is not run alone. Needs
        `without_dropout`.
        """

    def of_all_workers(self, outputs: Arrays) -> Arrays:
        """Return a micro-batch's outputs as one worker would have them."""

    def exact_kernels(self, limits: bool = False) -> AbstractContextManager[Callable[[], int]]:
        """Return a context in which functions with inaccurate kernels compute in float64.

        With `limits`, kernels that end at another number have PyTorch's, too. The context's value
        counts the calls.
        """

    def holding(self, arrays: Arrays) -> AbstractContextManager[Any]:
        """Return a context in which a port has these arrays, for runs by exact kernels; of a
        reference, whose kernels are accurate, one without effect.
        """

    def updates_by_kernels(
        self, like: Like | None, masks: Mapping[str, Sequence[np.ndarray]]
    ) -> tuple[Run, Run] | None:
        """Return the updates, uncompiled, as the framework's kernels compute them and as exact ones
        do; None if the kernels are accurate. They have a pass with dropout masks, but none with
        random numbers for constant arrays. Needs `prepare_updates`; call this outside of `masked`.
        """

    def tensor(self, array: Any) -> Any:
        """Return an array as the framework's tensor."""

    def measured(self) -> Measured:
        """Return what rounding may change in the updates; nothing if it is not measured on this
        side.

        Needs `updates`. Call this once: it forgets the decisions of the updates.
        """

    def limits(self) -> list[str]:
        """Return a line for each constant array that has no random numbers in any run, and for each
        limit of a function that no number of the updates and probes has reached; also arguments
        that are not given. Needs `updates`.
        """

    def builds(self) -> list[Arrays]:
        """Return the initial values of several nets, or [] if they are not compared."""

    def environment(self) -> dict[str, str]:
        """Return versions, device and variables."""

    def source(self, trace: Trace) -> Source:
        """Return what the trace can still be asked. Needs `updates` and, of the reference,
        `layers("train")`: without it, no ties are flipped.
        """
