"""Train a torch module in a plain training loop, and record what the comparison needs."""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch

from resnet_fn.parity.record.alone import changes_alone
from resnet_fn.parity.record.common import check_scalar
from resnet_fn.parity.record.numbers import Place, numbers_of
from resnet_fn.parity.record.optimizer_settings import torch_settings
from resnet_fn.parity.record.randomness import is_apart
from resnet_fn.parity.record.side import Step
from resnet_fn.parity.record.torch_copy import copied
from resnet_fn.parity.record.torch_module import (
    array_of,
    call,
    dtype_of,
    in_precision,
    outputs_of,
    state,
    tensors,
)
from resnet_fn.parity.record.torch_recipe import Average, recipe_optimizer
from resnet_fn.parity.record.updates import record_updates
from resnet_fn.parity.trace.data import RATE, STATISTICS, ParameterSettings, Run
from resnet_fn.parity.trace.made_up import made_up
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.returned import as_complex, shape_of
from resnet_fn.parity.trace.tree import Arrays, Batch, Tree, shared, split
from resnet_fn.runtime.malloc import release_freed

Loss = Callable[[Any, Any], torch.Tensor]

MakeOptimizer = Callable[[torch.nn.Module], torch.optim.Optimizer]

# a module → the context in which it is evaluated
Evaluating = Callable[[torch.nn.Module], AbstractContextManager[None]]

# float16 by autocasting
_DTYPES = {"float32": torch.float32, "float64": torch.float64, "float16": torch.float32}


class TorchStepper:
    """Trains a copy of a torch module in a plain training loop.

    Args:
        module: the reference.
        plan: the updates.
        loss: a function (outputs, labels) → scalar.
        make_optimizer: returns an optimizer of a module; None: the plan's.
        precision: "float32", "float64", or "float16" for automatic mixed precision.
        evaluating: returns the context in which a module is evaluated.
        masked: the reference with dropout masks, or None.
        known: arrays that the state from before the updates may share.
    """

    shows_gradients = True

    def __init__(
        self,
        module: torch.nn.Module,
        plan: Plan,
        loss: Loss,
        make_optimizer: MakeOptimizer | None,
        precision: str,
        evaluating: Evaluating,
        masked: torch.nn.Module | None = None,
        known: Arrays | None = None,
    ) -> None:
        self._known = known or {}
        self._given = (plan, loss, make_optimizer, precision, evaluating)
        self._reference = module
        self._masked = masked
        self._plan = plan
        self._run = TorchRun(module, plan, loss, precision, evaluating)
        self._optimizer, self._set_rate = optimizer_of(self._run.module, plan, make_optimizer)
        self._average = Average(self._run.module, plan.average) if plan.average else None
        self._numbers: dict[str, torch.Tensor | float] = {}

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
        if index == 0:
            self._numbers = _numbers_of(module)
        self._set_rate(rate)
        self._optimizer.zero_grad()
        value, outputs, parts = run.backward(self._plan.batches[index])
        gradients = run.gradients() if index == 0 else {}
        norm = self._clip()
        none = run.no_gradient()
        clipped = gradients  # without a limit, and unless the norm is infinite, they are unchanged
        if index == 0 and (self._plan.clip_norm or not math.isfinite(norm)):
            clipped = run.gradients()
        self._optimizer.step()
        self._optimizer.zero_grad()  # gradients need no memory while the state is copied
        if self._average is not None:
            self._average.update(module)
        return Step(value, norm, outputs, True, gradients, clipped, none, parts)

    def _clip(self) -> float:
        """Clip the gradients, and return their global norm before."""
        run = self._run
        limit = self._plan.clip_norm or float("inf")
        sparse = [one for one in run.parameters.values() if _is_sparse(one.grad)]
        kept = [one.grad for one in sparse]
        for parameter in sparse:  # torch neither clips nor decays with sparse gradients
            assert parameter.grad is not None
            parameter.grad = parameter.grad.to_dense()
        norm = float(torch.nn.utils.clip_grad_norm_(list(run.parameters.values()), limit))
        if self._given[2] is not None and norm <= limit:  # SparseAdam takes no others
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
        """Return the buffers and numbers that the updates have changed (`Run.moved`)."""
        return _moved(self._run.module, self._numbers, self._plan.first[0])

    def average(self) -> Arrays:
        """Return the moving average after the last update, or {}. Training ends."""
        average = state(self._average.module) if self._average is not None else {}
        # further runs copy the module again, and memory is needed for one copy only
        del self._run, self._optimizer, self._set_rate, self._average
        release_freed()
        return average

    def on_batch(self, index: int, start: Arrays) -> Run:
        """Run forward and backward on a batch with the weights before any update."""
        plan, loss, _, precision, evaluating = self._given
        batch = plan.batches[index]
        return on_batch(self._reference, plan, batch, loss, precision, evaluating, start)

    def with_constants(self, start: Arrays, drawn: Arrays) -> list[Run]:
        """Return [forward passes of the first batch with the arrays `drawn`], or [] if it fails."""
        plan, loss, _, precision, evaluating = self._given
        # in its precision, or `in_float64` would write into a copy of each array
        module = load(copied(self._reference).to(_DTYPES[precision]), drawn)
        values = {**start, **drawn}
        # A net that draws random numbers draws the same ones afterwards as without this run.
        with contextlib.suppress(Exception), torch.random.fork_rng():
            run = on_batch(module, plan, plan.batches[0], loss, precision, evaluating, values)
            return [dataclasses.replace(run, gradients={})]
        return []

    def with_masks(self, start: Arrays) -> list[Run]:
        """Return [update 1 with dropout masks], or [] if no layer gets a mask."""
        if self._masked is None:
            return []
        stepper = TorchStepper(self._masked, *self._given)
        return [record_updates(stepper, self._plan, self._plan.rates, {}, updates=1)]


def load(module: torch.nn.Module, values: Arrays) -> torch.nn.Module:
    """Copy values into a module, by name."""
    complex_ones = {name for name, one in module.state_dict().items() if one.dtype.is_complex}
    arrays = {
        name: as_complex(one) if name in complex_ones else np.array(one)
        for name, one in values.items()
    }
    module.load_state_dict(
        {name: torch.from_numpy(one) for name, one in arrays.items()}, strict=False
    )
    return module


def on_batch(
    module: torch.nn.Module,
    plan: Plan,
    batch: Batch,
    loss: Loss,
    precision: str,
    evaluating: Evaluating,
    start: Arrays,
) -> Run:
    """Return the numbers of a copy of a module on one batch, without an update."""
    copy = TorchRun(module, plan, loss, precision, evaluating)
    run = Run(copy.evaluate(batch[0]), start=start, rates=[])
    value, outputs, _ = copy.backward(batch)
    run.losses = [value]
    run.train_outputs = [outputs]
    run.gradients = copy.gradients()
    run.no_gradient = copy.no_gradient()
    return run


class TorchRun:
    """Runs a copy of a module, in one precision, on the batches of a plan."""

    def __init__(
        self,
        module: torch.nn.Module,
        plan: Plan,
        loss: Loss,
        precision: str,
        evaluating: Evaluating,
    ) -> None:
        self.plan = plan
        self.loss = loss
        self.evaluating = evaluating
        self.dtype = _DTYPES[precision]
        self.module = in_precision(copied(module), self.dtype)
        self.parameters = {
            name: one for name, one in self.module.named_parameters() if one.requires_grad
        }
        self.autocast = functools.partial(
            torch.autocast, "cpu", torch.float16, enabled=precision == "float16"
        )
        # The loss scale, without which small gradients would underflow.
        self.scale = plan.loss_scale if precision == "float16" else 1.0

    def evaluate(self, inputs: Tree, module: torch.nn.Module | None = None) -> Arrays:
        """Return the outputs of the copy, or of `module`, in evaluation mode."""
        net = self.module if module is None else module
        with torch.no_grad(), self.autocast(), self.evaluating(net):
            return outputs_of(call(net.eval(), tensors(inputs, self.dtype)))

    def backward(self, batch: Batch) -> tuple[float, Arrays, list[Arrays]]:
        """Run a batch forward and backward in training mode. Before the call, `parameter.grad` must
        be zero or None.

        Returns the mean loss, the outputs of the last micro-batch, and the gradients of each
        micro-batch. With a single micro-batch, the list of gradients is empty. Call `gradients`
        instead.
        """
        self.module.train()
        total = 0.0
        parts: list[Arrays] = []
        count = self.plan.accumulate
        before = self.gradients()
        for inputs, labels in split(tuple(batch), count):
            with self.autocast():
                outputs = call(self.module, tensors(inputs, self.dtype))
            given = outputs
            if isinstance(outputs, torch.Tensor) and outputs.dtype == torch.float16:
                given = outputs.to(self.dtype)
            loss = self.loss(given, tensors(labels, self.dtype))
            value = scalar(loss)
            if value.requires_grad:  # false if nothing is trained
                (value * (self.scale / count)).backward()
            total += float(value.detach()) / count
            if count > 1:
                now = self.gradients()
                factor = count / self.scale
                parts.append({name: (now[name] - before[name]) * factor for name in now})
                before = now
        for parameter in self.parameters.values():
            if self.scale != 1.0 and parameter.grad is not None:
                parameter.grad /= self.scale
        return total, outputs_of(outputs), parts

    def gradients(self) -> Arrays:
        """Return the gradients by parameter name. A parameter without a gradient gets zeros."""
        gradients = {}
        for name, one in self.parameters.items():
            if one.grad is None:
                gradients[name] = np.zeros(shape_of(one), np.float32)
            else:
                gradients[name] = array_of(one.grad)
        return gradients

    def no_gradient(self) -> list[str]:
        """Return the names of the trained parameters whose gradient is None."""
        return [name for name, one in self.parameters.items() if one.grad is None]


def _is_sparse(tensor: torch.Tensor | None) -> bool:
    return tensor is not None and tensor.is_sparse


# So many updates later, the value of a counter may still change an output: by a schedule, a warm-up
# or, because these are prime numbers, every few updates.
_LATER_COUNTS = (1, 997, 99_991)


def _numbers_of(module: torch.nn.Module) -> dict[str, torch.Tensor | float]:
    """Return the buffers of a module, and the numbers in attributes of its layers, by path."""
    numbers = {name: place.value() for name, place in _places(module).items()}
    return numbers | {
        name: one.clone()
        for name, one in module.named_buffers()
        if name.rpartition(".")[2] not in (*STATISTICS, "num_batches_tracked")
    }


def _places(module: torch.nn.Module) -> dict[str, Place]:
    return numbers_of(module.named_modules(), vars(torch.nn.Module()))


def _moved(
    module: torch.nn.Module, first: dict[str, torch.Tensor | float], inputs: Tree
) -> dict[str, str]:
    """For each buffer that training changed, return the mode in which its change alters an output,
    or "" if none. Counters and attributes are left out if they alter no output.
    """

    @functools.cache  # without `name`, outputs are used again for each buffer
    def outputs(train: bool, name: str = "", more: int = 0) -> Arrays:
        one = copied(module).train(train)
        if name:
            value = last[name] + more if more else first[name]
            if isinstance(value, torch.Tensor):
                layer, _, leaf = name.rpartition(".")
                setattr(one.get_submodule(layer), leaf, value.clone())
            else:
                _places(one)[name].write(value)
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)
            return outputs_of(call(one, tensors(inputs, dtype_of(module))))

    def alters(train: bool, name: str, more: int) -> bool:
        try:
            return is_apart(outputs(train), outputs(train, name, more))
        except Exception:  # a place in a queue, for example, must stay within the queue
            return False

    last = _numbers_of(module)
    changes: dict[str, str] = {}
    for name, value in last.items():
        before = first.get(name)
        if before is None or _is_same(before, value):
            continue
        counts = _counts(before, value)
        trials = (0, *_LATER_COUNTS) if counts else (0,)
        modes = {"evaluation": False, "training": True}.items()
        altered = [
            mode for mode, train in modes if any(alters(train, name, more) for more in trials)
        ]
        if altered or not (counts or isinstance(value, int | float)):
            changes[name] = altered[0] if altered else ""
    return changes


def _is_same(before: torch.Tensor | float, value: torch.Tensor | float) -> bool:
    """Return whether a number is unchanged, or has another shape or type than before."""
    if isinstance(before, torch.Tensor) and isinstance(value, torch.Tensor):
        return before.shape != value.shape or torch.equal(before, value)
    return type(before) is not type(value) or before == value


def _counts(before: torch.Tensor | float, value: torch.Tensor | float) -> bool:
    """Return whether one number has changed by a whole number."""
    if isinstance(value, torch.Tensor) and (value.numel() != 1 or value.dtype == torch.bool):
        return False
    return float(value - before).is_integer()


def optimizer_of(
    module: torch.nn.Module, plan: Plan, make_optimizer: MakeOptimizer | None
) -> tuple[torch.optim.Optimizer, Callable[[float], None]]:
    """Return the optimizer, and a function that sets the learning rates of its groups."""
    optimizer = (
        make_optimizer(module) if make_optimizer else recipe_optimizer(plan.optimizer, module)
    )
    # Each group keeps the ratio of its rate to the largest group's rate.
    groups = optimizer.param_groups
    largest = max(group["lr"] for group in groups) or 1.0
    shares = [group["lr"] / largest if make_optimizer else 1.0 for group in groups]

    def set_rate(rate: float) -> None:
        for group, share in zip(optimizer.param_groups, shares, strict=True):
            group["lr"] = rate * share

    return optimizer, set_rate


def settings_of_optimizer(
    module: torch.nn.Module, plan: Plan, make_optimizer: MakeOptimizer | None
) -> ParameterSettings:
    """Return the settings of the optimizer of a module, by setting and parameter."""
    module = copied(module)
    optimizer, _ = optimizer_of(module, plan, make_optimizer)
    names = {}
    for name, one in module.named_parameters():
        if one.requires_grad:
            names[id(one)] = name
    settings = torch_settings(optimizer.param_groups, names)
    if not make_optimizer:  # the recipe's optimizer has no learning rate of its own
        del settings[RATE]
    return settings


def optimizer_alone(
    module: torch.nn.Module, plan: Plan, make_optimizer: MakeOptimizer | None
) -> dict[int, Arrays]:
    """Update random weights with random gradients.

    Return the changes after the first and the last update, by name.
    """
    module = copied(module)
    parameters = {}
    shapes = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            parameters[name] = parameter
            shapes[name] = shape_of(parameter)
    weights, gradients = made_up(shapes)
    for name, parameter in parameters.items():
        parameter.data.copy_(_like(parameter, weights[name]))
    optimizer, set_rate = optimizer_of(module, plan, make_optimizer)
    is_sparse = isinstance(optimizer, torch.optim.SparseAdam)

    def update(gradients: Arrays, rate: float) -> None:
        set_rate(rate)
        for name, parameter in parameters.items():
            gradient = _like(parameter, gradients[name]).to(parameter.dtype)
            parameter.grad = gradient.to_sparse(1) if is_sparse else gradient
        optimizer.step()

    return changes_alone(
        weights, gradients, update, lambda: {n: array_of(p) for n, p in parameters.items()}
    )


def _like(parameter: torch.Tensor, array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(as_complex(array) if parameter.dtype.is_complex else array)


def scalar(value: Any) -> torch.Tensor:
    """Return a loss as a tensor without axes, or raise ValueError."""
    check_scalar("the reference", value, torch.Tensor)
    return value.reshape(())
