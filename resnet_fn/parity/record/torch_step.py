"""Train a torch module in a plain training loop, and record what the comparison needs."""

import dataclasses
from collections.abc import Callable, Mapping

import torch

from resnet_fn.config.wording import words_of
from resnet_fn.parity.record.numbers import Noted
from resnet_fn.parity.record.side import Step
from resnet_fn.parity.record.torch_copy import copied
from resnet_fn.parity.record.torch_module import state
from resnet_fn.parity.record.torch_moved import (
    Value,
    idle_numbers,
    moved,
    moving_state,
    places_of,
)
from resnet_fn.parity.record.torch_optimizer import optimizer_of
from resnet_fn.parity.record.torch_recipe import Average
from resnet_fn.parity.record.torch_run import TorchRun, Training, load
from resnet_fn.parity.record.updates import record_updates
from resnet_fn.parity.trace.data import Run
from resnet_fn.parity.trace.plan import LATER
from resnet_fn.parity.trace.tree import Arrays, Tree, shared
from resnet_fn.runtime.malloc import release_freed


class TorchStepper:
    """Trains a copy of a torch module in a plain training loop.

    Args:
        module: the reference.
        training: how it is trained.
        precision: "float32", "float64", or "float16" for automatic mixed precision.
        masked: the reference with dropout masks, or None.
        known: arrays that the state from before the updates may share.
        finds_moved: whether `find_moved` is called after the run.
        measure: gets the gradients of update 1 in place of the `Step`, which then has none: in
            float64 they take much memory. They are valid until `measure` returns.
    """

    shows_gradients = True

    def __init__(
        self,
        module: torch.nn.Module,
        training: Training,
        precision: str,
        masked: torch.nn.Module | None = None,
        known: Arrays | None = None,
        finds_moved: bool = False,
        measure: Callable[[Arrays], None] | None = None,
    ) -> None:
        self.rejects = ""  # why the module fails with the arrays of `with_constants`
        self._reference, self._masked = module, masked
        self._training, self._precision = training, precision
        self._plan, self._known = training.plan, known or {}
        self._run = TorchRun(module, training, precision)
        trained = self._run.module
        self._optimizer, self._set_rate = optimizer_of(
            trained, self._plan.optimizer, training.make_optimizer
        )
        self._average = Average(trained, self._plan.average) if self._plan.average else None
        # Clipped gradients in float64 are no copies, unless an optimizer of the user's may write
        # into them.
        self._copies_clipped = precision != "float64" or bool(training.make_optimizer)
        self._measure = measure
        self._first: Mapping[str, Value] = {}
        self._noted = Noted({})
        self._numbers: Mapping[str, bool] = {}  # `Noted.moved`
        self._finds_moved = finds_moved
        self.idle_numbers = list[str]()  # of `find_moved`
        self._last: torch.nn.Module | None = None  # as after the last compared update

    def evaluate(self, inputs: Tree) -> Arrays:
        """Return the outputs in evaluation mode."""
        return self._run.evaluate(inputs)

    def state(self) -> Arrays:
        """Return copies of all parameters and statistics."""
        return shared(state(self._run.module), self._known)

    def alone(self) -> tuple[list[float], Arrays]:
        """Return ([], {}): there is one worker."""
        return [], {}

    def update(self, index: int, rate: float) -> Step:
        """Make an update with the batch of this index, and return what it computed."""
        run = self._run
        module = run.module
        # after the evaluation, which may move state, too; copies are no decisions that a mode notes
        if index == 0 and self._finds_moved:
            self._first, self._noted = moving_state(module), Noted(places_of(module))
        self._set_rate(rate)
        self._optimizer.zero_grad()
        value, outputs, parts = run.backward(self._plan.batches[index])
        gradients: Arrays = {}
        if index == 0 and self._measure:
            self._measure(run.gradients(copied=False))
        elif index == 0:
            gradients = run.gradients()
        norm = self._clip()
        none = run.no_gradient()
        # below the limit, clipping changes nothing
        clipped = shared(run.gradients(self._copies_clipped), gradients) if index == 0 else {}
        self._optimizer.step()
        self._optimizer.zero_grad()  # gradients need no memory while the state is copied
        if self._finds_moved:
            self._noted.add(places_of(module))
        if self._average is not None:
            self._average.update(module)
        return Step(
            loss=value,
            norm=norm,
            outputs=outputs,
            gradients=gradients,
            clipped=clipped,
            no_gradient=none,
            parts=parts,
        )

    def _clip(self) -> float:
        """Clip the gradients, and return their global norm before."""
        run = self._run
        limit = self._plan.clip_norm or float("inf")
        sparse = [trained for trained in run.parameters.values() if _is_sparse(trained.grad)]
        kept = [trained.grad for trained in sparse]
        for parameter in sparse:  # torch neither clips nor decays with sparse gradients
            assert parameter.grad is not None
            parameter.grad = parameter.grad.to_dense()
        norm = float(torch.nn.utils.clip_grad_norm_(list(run.parameters.values()), limit))
        if self._training.make_optimizer and norm <= limit:  # SparseAdam takes no others
            for parameter, gradient in zip(sparse, kept, strict=True):
                parameter.grad = gradient
        return norm

    def last_outputs(self, weights: Arrays, after: Arrays) -> Arrays:
        """Return the outputs of the first batch in evaluation mode, with these weights and the
        present other state.
        """
        module = self._run.module
        module = load(copied(module), weights) if weights else module
        return self._run.evaluate(self._plan.batches[0][0], module)

    def moved(self) -> dict[str, str]:
        """Keep the module for `find_moved`, and return {}."""
        if self._finds_moved:
            module, updates = self._run.module, len(self._plan.batches)
            self._last = copied(module) if updates > LATER else module
            self._numbers = self._noted.moved(places_of(module))
        return {}

    def find_moved(self) -> dict[str, str]:
        """Return the buffers and numbers that the updates have changed (`Run.moved`).

        Call this after the run, and outside of its modes: other runs do not make these calls.
        """
        assert self._last is not None
        altering = moved(self._last, self._first, self._plan.first[0], self._numbers)
        self.idle_numbers = idle_numbers(self._last, self._first, self._numbers, altering)
        return altering

    def average(self) -> Arrays:
        """Return the moving average after the last update, or {}. Training ends."""
        average = state(self._average.module) if self._average is not None else {}
        # further runs copy the module again, and memory is needed for one copy only
        del self._run, self._optimizer, self._set_rate, self._average
        release_freed()
        return average

    def on_batch(self, index: int, start: Arrays) -> Run:
        """Run forward and backward on a batch with the weights before any update."""
        run = TorchRun(self._reference, self._training, self._precision)
        return run.on_batch(self._plan.batches[index], start)

    def with_constants(self, start: Arrays, drawn: Arrays) -> list[Run]:
        """Return [forward passes of the first batch with the arrays `drawn`], or [] if it fails."""
        try:
            copy = TorchRun(self._reference, self._training, self._precision)
            run = copy.with_constants(start, drawn)
        except Exception as error:
            self.rejects = words_of(error)
            return []
        return [dataclasses.replace(run, gradients={})]

    def with_masks(self, start: Arrays) -> list[Run]:
        """Return [update 1 with dropout masks], or [] if no layer gets a mask."""
        if self._masked is None:
            return []
        stepper = TorchStepper(self._masked, self._training, self._precision)
        return [record_updates(stepper, self._plan, self._plan.rates, {}, updates=1)]


def _is_sparse(tensor: torch.Tensor | None) -> bool:
    return tensor is not None and tensor.is_sparse
