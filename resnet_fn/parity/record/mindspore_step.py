"""Train a MindSpore net for a few updates through its step, and record what the step computes."""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn

from resnet_fn.config.wording import words_of
from resnet_fn.parity.record.cells import Attributes, places_of, unchanged, write
from resnet_fn.parity.record.masked_cells import Masks
from resnet_fn.parity.record.mindspore_cell import (
    MissingKernelError,
    arguments,
    array_of,
    assign,
    call,
    compiler,
    explained,
    first_call,
    outputs_of,
    parameters_by_path,
    state,
    with_inputs,
)
from resnet_fn.parity.record.mindspore_loss import Loss
from resnet_fn.parity.record.mindspore_recorders import (
    output_recorder,
    picker,
    recorder,
    recording_loss,
    recording_optimizer,
    recording_reduce,
)
from resnet_fn.parity.record.numbers import Noted
from resnet_fn.parity.record.side import Step
from resnet_fn.parity.trace.data import Run
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.tree import Arrays, Batch, Tree, map_tree, named_leaves, shared, split
from resnet_fn.runtime import process
from resnet_fn.runtime.workers import Workers
from resnet_fn.update.average import MovingAverage, averaged_parameters, moving_average
from resnet_fn.update.loss_scale import make_scaler
from resnet_fn.update.state import Optimizer, make_state
from resnet_fn.update.step import StepPlan, StepResult, TrainStep, no_metric

MakeStep = Callable[..., TrainStep]

Evaluate = Callable[[Tree], Arrays]  # inputs → outputs in evaluation mode

# a step, and each parameter of it with the value from before any update
_Built = tuple[TrainStep, Sequence[tuple[Parameter, np.ndarray]]]


_NONE: Mapping[str, np.ndarray] = MappingProxyType({})


class MindSporeStepper:
    """Trains a MindSpore net through its compiled step. The net's weights change.

    Args:
        net: the port, without dropout.
        plan: the updates.
        rates: the learning rates of the updates.
        loss: a function (outputs, labels) → number.
        optimizer: the optimizer of the step.
        make_step: a function like `make_train_step`.
        outputs: the net's outputs by mode: "eval" on the first batch, and "train" on the first
            micro-batch.
        evaluate: evaluates the net; None: it is evaluated as it is now, without dropout.
        masks: the dropout masks, which are ones until they are set; None: there are none.
        workers: the workers that share each batch.
        start: the net's state, whose arrays are kept instead of copies.
    """

    def __init__(
        self,
        net: nn.Cell,
        plan: Plan,
        rates: list[float],
        loss: Loss,
        optimizer: Optimizer,
        make_step: MakeStep,
        outputs: Mapping[str, Any],
        evaluate: Evaluate | None,
        masks: Masks | None,
        workers: Workers,
        start: Arrays,
    ) -> None:
        self._start = start
        self._net, self._plan, self.rates, self._loss = net, plan, rates, loss
        self.rejects = ""  # why the net fails with the arrays of `with_constants`
        self._optimizer, self._make_step, self._outputs = optimizer, make_step, outputs
        self._masks, self._workers = masks, workers
        self.evaluate = evaluate or evaluation(net, plan.batches[0][0], outputs["eval"])
        self._attributes = Attributes(net)
        self._shapes = {
            path: parameter.shape
            for path, parameter in parameters_by_path(net).items()
            if parameter.requires_grad
        }
        types = {
            path: parameter.dtype
            for path, parameter in parameters_by_path(net).items()
            if parameter.dtype in (mindspore.complex64, mindspore.complex128)
        }
        self._keep_gradients, self._gradients = recorder(self._shapes, "gradient", types)
        self._shares = [split(tuple(batch), workers.size)[workers.rank] for batch in plan.batches]
        self._micro_batches = max(1, plan.accumulate // workers.size)
        self._sharing = dict[str, Any]()  # further arguments of the step of one of several workers
        self._reduced: tuple[Callable[[], Arrays], Callable[[], Arrays]] | None = None
        self.shows_gradients = not plan.clip_norm
        self._noted = Noted(places_of(net))
        self._updates = True  # whether the optimizer runs on this device
        self._outputs_of: Callable[[Tree], Arrays] | None = None  # if the step does not record them
        self._before: Sequence[tuple[Parameter, np.ndarray]] = ()

    def state(self) -> Arrays:
        """Return copies of all parameters and statistics."""
        return shared(state(self._net), self._start)

    def alone(self) -> tuple[list[float], Arrays]:
        """Return the losses and the statistics of this worker (`Run.own_losses`).

        With one worker, both are empty.
        """
        net, workers, loss, count = self._net, self._workers, self._loss, self._micro_batches
        if not workers.all_reduce:
            return [], {}
        all_reduce, *reduced = recording_reduce(workers.all_reduce, self._shapes)
        self._reduced = (reduced[0], reduced[1])
        self._sharing["workers"] = workers._replace(all_reduce=all_reduce)
        share = self._shares[0]
        train = first_call(net, split(share, count)[0][0], True)
        self._outputs = {**self._outputs, "train": train}
        with unchanged(net.get_parameters()):
            pairs = [(call(net.set_train(True), x), y) for x, y in split(share, count)]
            losses = [float(np.mean([loss(x, map_tree(Tensor, y)).numpy() for x, y in pairs]))]
            statistics = {
                path: value for path, value in state(net).items() if path not in self._shapes
            }
        # This fails if an output has no sample axis, or exists in training mode only.
        with contextlib.suppress(Exception), process.ending_mixed_precision():
            outputs = map_tree(lambda tensor: tensor.numpy(), self._outputs["eval"])
            whole = outputs, self._plan.batches[0][1]
            several = [
                [loss(*map_tree(Tensor, part)).numpy() for part in split(whole, n)]
                for n in (1, workers.size)
            ]
            losses += [float(np.mean(values)) for values in several]
        return losses, statistics

    def _build(self) -> None:
        """Compile the steps, which need the net's state from before any update."""
        like, compiled = self._outputs["train"], compiler() is not None
        self._recorded_loss = recording_loss(self._loss, None)
        if self._outputs_of is None:
            keep, self._kept = output_recorder(like, "train", compiled)
            self._recorded_loss = recording_loss(self._loss, keep)
        self._average = None
        if plan := self._plan.average:
            parameters = averaged_parameters(self._net)
            self._average = moving_average(parameters, plan.decay, plan.every, plan.start)
        # A step without clipping or update records the gradients before clipping.
        self._unclipped = self._step_with(None, 0.0) if self._plan.clip_norm else None
        self._clipped = self._step_with(self._optimizer, self._plan.clip_norm, self._average)
        self._before = self._clipped[1]

    def record_outputs_apart(self) -> None:
        """Start again, and run the net once more for its outputs in training mode.

        A compiled step stores no outputs of varying size.
        """
        for parameter, value in self._before:
            write(parameter, value)
        inputs, like = self._plan.batches[0][0], self._outputs["train"]
        self._outputs_of = evaluation(self._net, inputs, like, train=True)

    def _outputs_apart(self, share: Batch) -> Arrays:
        if self._outputs_of is None:
            return {}
        inputs, _ = split(tuple(share), self._micro_batches)[-1]
        with unchanged(self._net.get_parameters()):
            return self._outputs_of(inputs)

    def _step_with(
        self, optimizer: Optimizer | None, clip_norm: float, average: MovingAverage | None = None
    ) -> _Built:
        """Return a training step, and a pair (parameter, value before any update) for each
        parameter of the step.
        """
        plan = self._plan
        if not self._shapes:
            return self._forward_step(), [
                (parameter, parameter.numpy().copy()) for parameter in self._net.get_parameters()
            ]
        scaler = make_scaler(plan.precision, plan.loss_scale, plan.loss_scale_interval)
        update = recording_optimizer(optimizer, self._keep_gradients)
        run_state = make_state(self._net, update, scaler, average)
        options: dict[str, Any] = {
            "state": run_state,
            "metric": no_metric,
            "plan": StepPlan(clip_norm, self._micro_batches),
            "jit": compiler(),
            **self._sharing,
        }
        known = {
            id(parameter): self._start.get(path)
            for path, parameter in parameters_by_path(self._net).items()
        }
        before = [
            (parameter, _before(parameter.numpy(), known.get(id(parameter))))
            for parameter in (*run_state.weights, *run_state.training)
        ]
        forward = with_inputs(self._net, plan.batches[0][0])
        return self._make_step(forward, self._recorded_loss, update, **options), before

    def _forward_step(self) -> TrainStep:
        """Return the step of a net without trained parameters, which only computes the loss."""
        net, jit = with_inputs(self._net, self._plan.batches[0][0]), compiler()

        def forward(inputs: Any, targets: Any) -> Tensor:
            return self._recorded_loss(net(inputs), targets)

        run, count = jit(forward) if jit else forward, self._micro_batches

        def step(inputs: Any, targets: Any, learning_rate: Tensor) -> StepResult:
            self._net.set_train()
            parts = zip(_parts(inputs, count), _parts(targets, count), strict=True)
            loss = sum(float(run(*part).numpy()) for part in parts) / count
            packed, scaler = (
                Tensor(row, mindspore.float32) for row in ([loss, 0, 0, 0], [1, 0, 0])
            )
            none = Tensor(0.0, mindspore.float32)
            return StepResult(packed, none, scaler, none, 1)

        return step

    def update(self, index: int, rate: float) -> Step:
        """Make an update with this worker's part of a batch, and return what it computed."""
        if index == 0:
            # after the evaluation, which may move numbers, too
            self._noted.restart(places_of(self._net))
            self._build()
        share = self._shares[index]
        outputs = self._outputs_apart(share)
        try:
            result = _call(self._clipped[0], self._net, share, rate)
        except MissingKernelError:  # The net has run before, so the optimizer lacks the kernel.
            self._clipped = self._step_with(None, self._plan.clip_norm)
            result, self._updates = _call(self._clipped[0], self._net, share, rate), False
        self._noted.add(places_of(self._net))
        loss, norm = float(result.loss.numpy()), float(result.grad_norm.numpy())
        step = Step(loss=loss, norm=norm, outputs=outputs or self._kept(), made=self._updates)
        if index > 0:
            return step
        clipped = self._gradients()
        sent, received = (read() for read in self._reduced) if self._reduced else ({}, {})
        return dataclasses.replace(
            step,
            gradients=clipped if self.shows_gradients else {},
            clipped=clipped,
            sent=sent,
            received=received,
        )

    def last_outputs(self, weights: Arrays, after: Arrays) -> Arrays:
        """Return the outputs of the first batch in evaluation mode, with these weights and the
        present other state. Then `after` is put back.
        """
        kept = Attributes(self._net)
        assign(self._net, weights)
        outputs = self.evaluate(self._plan.batches[0][0])
        kept.put_back()  # an evaluation may merge weights, and remember that
        assign(self._net, after)
        return outputs

    def moved(self) -> dict[str, str]:
        """Return the attributes of cells that were numbers and that the updates have changed."""
        return dict.fromkeys(self._noted.moved(places_of(self._net)), "")

    def average(self) -> Arrays:
        """Return the moving average after the last update, or {}."""
        if self._average is None or not self._updates:
            return {}
        averages = {value.name.removeprefix("ema."): value for value in self._average.averages}
        # A frozen parameter is its own average.
        named = {
            path: averages.get(parameter.name, parameter)
            for path, parameter in parameters_by_path(self._net).items()
        }
        return {path: value.numpy().copy() for path, value in named.items()}

    def on_batch(self, index: int, start: Arrays) -> Run:
        """Run forward and backward with the weights before any update, without clipping."""
        return self._on_batch(index, start, self._unclipped or self._clipped)

    def with_constants(self, start: Arrays, drawn: Arrays) -> list[Run]:
        """Return [forward passes of the first batch with the arrays `drawn`].

        If the net fails, it has no outputs.
        """
        self.rejects = ""
        run = Run({}, start={**start, **drawn}, rates=[])
        try:
            run = self._on_batch(0, run.start, self._unclipped or self._clipped, drawn)
        except Exception as error:
            self.rejects = words_of(error)
        return [dataclasses.replace(run, gradients={})]

    def _on_batch(
        self, index: int, start: Arrays, built: _Built, drawn: Mapping[str, np.ndarray] = _NONE
    ) -> Run:
        step, before = built
        self._attributes.put_back()
        for parameter, value in before:
            write(parameter, value)
        assign(self._net, drawn)
        run = Run(self.evaluate(self._plan.batches[index][0]), start=start, rates=[])
        outputs = self._outputs_apart(self._shares[index])
        result = _call(step, self._net, self._shares[index], self.rates[0])
        run.losses = [float(result.loss.numpy())]
        run.train_outputs, run.gradients = [outputs or self._kept()], self._gradients()
        return run

    def put_back(self) -> None:
        """Write the values from before any update into the net and the optimizer."""
        for parameter, value in self._before:
            write(parameter, value)

    def with_masks(self, start: Arrays) -> list[Run]:
        """Return [update 1 with dropout masks], or [] if no layer gets a mask."""
        if self._masks is None:
            return []
        self._masks.set()
        run = self.on_batch(0, start)
        after = self._on_batch(0, start, self._clipped) if self._unclipped else run
        run.clipped = after.gradients
        run.after = [shared(state(self._net), start)] if self._updates else []
        return [run]


def _parts(tensors: Any, count: int) -> list[Any]:
    """Split a tensor, or each of a tuple of tensors, into micro-batches."""
    if count == 1 or tensors is None:
        return [tensors] * count
    if isinstance(tensors, tuple):
        return list(zip(*(_parts(tensor, count) for tensor in tensors), strict=True))
    size = len(tensors) // count
    return [tensors[size * index : size * (index + 1)] for index in range(count)]


def _before(value: np.ndarray, known: np.ndarray | None) -> np.ndarray:
    """Return the known array, from before any run, or a copy of the value."""
    if known is not None:
        return known
    # the pages of new zeros take no memory until they are written
    return value.copy() if value.any() else np.zeros(value.shape, value.dtype)


def evaluation(net: nn.Cell, inputs: Tree, like: Any, train: bool = False) -> Evaluate:
    """Return a function that maps inputs to outputs, in evaluation mode or in training mode.

    Outputs must have the structure of `like`.
    """
    forward, jit = with_inputs(net, inputs), compiler()
    pick, tensors = picker(like)
    constants = outputs_of(like)  # the numbers and texts among them are constants of the code

    def picked(x: Any) -> tuple[Tensor, ...]:
        return pick(forward(x))

    step = jit(picked) if jit else forward

    def evaluate(inputs: Tree) -> Arrays:
        net.set_train(train)
        with explained(inputs, compiled=jit is not None):
            outputs = step(arguments(inputs))
            if not jit:
                return outputs_of(outputs)
            arrays = map(array_of, outputs)
            return constants | dict(zip(tensors, arrays, strict=True))

    return evaluate


def _call(step: TrainStep, net: nn.Cell, batch: Batch, rate: float) -> StepResult:
    inputs, labels = batch
    # compiled code takes no empty tuple
    targets = map_tree(Tensor, labels) if named_leaves(labels, "") else None
    with explained(inputs, compiled=compiler() is not None):
        result = step(arguments(inputs), targets, Tensor(rate, mindspore.float32))
        result.grad_norm.numpy()  # waits for the result: operations may fail after the call
    return result
