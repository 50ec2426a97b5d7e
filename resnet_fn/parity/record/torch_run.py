"""Run a copy of the reference in one precision, on the batches of a plan."""

import dataclasses
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch

from resnet_fn.parity.record.common import check_scalar, what_failed
from resnet_fn.parity.record.torch_copy import copied
from resnet_fn.parity.record.torch_module import (
    array_of,
    call,
    in_precision,
    outputs_of,
    tensors,
    view_of,
)
from resnet_fn.parity.trace.data import Run
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.returned import as_complex, named_outputs, shape_of
from resnet_fn.parity.trace.tree import Arrays, Batch, Tree, split

Loss = Callable[[Any, Any], torch.Tensor]

MakeOptimizer = Callable[[torch.nn.Module], torch.optim.Optimizer]

# a module → the context in which it is evaluated
Evaluating = Callable[[torch.nn.Module], AbstractContextManager[None]]

# float16 by autocasting
_DTYPES = {"float32": torch.float32, "float64": torch.float64, "float16": torch.float32}


@dataclasses.dataclass(frozen=True)
class Training:
    """How the reference is trained and evaluated, in any precision."""

    plan: Plan
    loss: Loss  # a function (outputs, labels) → scalar
    make_optimizer: MakeOptimizer | None  # None: the plan's
    evaluating: Evaluating

    def checked_loss(self, outputs: Any, labels: Tree) -> torch.Tensor:
        """Return the loss of the outputs of a module in float32, as a tensor without axes.

        An error of the loss becomes a ValueError that lists the outputs and labels.
        """
        try:
            value = self.loss(outputs, tensors(labels, torch.float32))
        except Exception as error:
            arguments = {"outputs": outputs_of(outputs), "labels": labels}
            fix = "give labels that it takes, or --loss"
            raise what_failed("loss of the reference", arguments, error, fix) from error
        return scalar(value)


class TorchRun:
    """Runs a copy of a module, in one precision, on the batches of a plan."""

    def __init__(self, module: torch.nn.Module, training: Training, precision: str) -> None:
        plan = training.plan
        self.plan = plan
        self.loss = training.loss
        self.evaluating = training.evaluating
        self.dtype = _DTYPES[precision]
        self.module = in_precision(copied(module), self.dtype)
        self.parameters = {
            name: parameter
            for name, parameter in self.module.named_parameters()
            if parameter.requires_grad
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
        before = self.gradients() if count > 1 else {}
        for inputs, labels in split(tuple(batch), count):
            with self.autocast():
                outputs = call(self.module, tensors(inputs, self.dtype))
            loss_input = outputs
            if isinstance(outputs, torch.Tensor) and outputs.dtype == torch.float16:
                loss_input = outputs.to(self.dtype)
            loss = self.loss(loss_input, tensors(labels, self.dtype))
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

    def on_batch(self, batch: Batch, start: Arrays) -> Run:
        """Run forward and backward on a batch, without an update.

        `start` is the state of the copy, from which no run has moved it.
        """
        run = Run(self.evaluate(batch[0]), start=start, rates=[])
        value, outputs, _ = self.backward(batch)
        run.losses = [value]
        run.train_outputs = [outputs]
        run.gradients = self.gradients()
        run.no_gradient = self.no_gradient()
        return run

    def with_constants(self, start: Arrays, drawn: Arrays) -> Run:
        """Run the first batch, without an update, with the arrays `drawn` in `start`."""
        # The copy has its precision already, or `in_float64` would write into a copy of each array.
        load(self.module, drawn)
        # A net that draws random numbers draws the same ones afterwards as without this run.
        with torch.random.fork_rng():
            return self.on_batch(self.plan.batches[0], {**start, **drawn})

    def gradients(self, copied: bool = True) -> Arrays:
        """Return the gradients by parameter name, copied or as they are. A parameter without a
        gradient gets zeros.
        """
        gradients = {}
        for name, parameter in self.parameters.items():
            if parameter.grad is None:
                gradients[name] = np.zeros(shape_of(parameter), np.float32)
            else:
                gradients[name] = array_of(parameter.grad) if copied else view_of(parameter.grad)
        return gradients

    def no_gradient(self) -> list[str]:
        """Return the names of the trained parameters whose gradient is None."""
        return [name for name, parameter in self.parameters.items() if parameter.grad is None]


def load(module: torch.nn.Module, values: Arrays) -> torch.nn.Module:
    """Copy values into a module, by name."""
    complex_ones = {name for name, tensor in module.state_dict().items() if tensor.dtype.is_complex}
    arrays = {
        name: as_complex(array) if name in complex_ones else np.array(array)
        for name, array in values.items()
    }
    module.load_state_dict(
        {name: torch.from_numpy(array) for name, array in arrays.items()}, strict=False
    )
    return module


def outputs_outside_loss(module: torch.nn.Module, batch: Batch, loss: Loss) -> list[str]:
    """Return the names of outputs that gradients could reach, and that the loss does not depend
    on.
    """
    with torch.random.fork_rng():
        outputs, value = _outputs_and_loss(copied(module).train(), batch, loss)
    leaves = {}
    for name, leaf in named_outputs(outputs).items():
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            leaves[name] = leaf
    if len(leaves) < 2:
        return []
    gradients = torch.autograd.grad(value, [*leaves.values()], allow_unused=True)
    named = zip(leaves, gradients, strict=True)
    return [name for name, gradient in named if gradient is None]


def arrays_outside_module(module: torch.nn.Module, batch: Batch, loss: Loss) -> list[torch.Tensor]:
    """Return what the loss of a batch has gradients for beside the module's parameters, such as
    weights of the loss.
    """
    module = copied(module).train()
    known = {*map(id, module.parameters())}

    def leaves() -> dict[int, torch.Tensor]:
        _, value = _outputs_and_loss(module, batch, loss)
        return {key: leaf for key, leaf in _leaves_of(value).items() if key not in known}

    with torch.random.fork_rng():
        first = leaves()
        # a tensor that the forward pass makes is another one in each pass
        again = leaves() if first else {}
    return [leaf for key, leaf in first.items() if key in again]


def _outputs_and_loss(
    module: torch.nn.Module, batch: Batch, loss: Loss
) -> tuple[Any, torch.Tensor]:
    inputs, labels = batch
    outputs = call(module, tensors(inputs, torch.float32))
    return outputs, scalar(loss(outputs, tensors(labels, torch.float32)))


def _leaves_of(value: torch.Tensor) -> dict[int, torch.Tensor]:
    """Return the tensors to which gradients of a value are added, by `id`."""
    leaves = {}
    left = [value.grad_fn]
    seen = set()
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if isinstance(variable, torch.Tensor):
            leaves[id(variable)] = variable
        left += [following for following, _ in node.next_functions]
    return leaves


def scalar(value: Any) -> torch.Tensor:
    """Return a loss as a tensor without axes, or raise ValueError."""
    check_scalar("the reference", value, torch.Tensor)
    return value.reshape(())
