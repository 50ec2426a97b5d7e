"""Train a torch module in a plain training loop, and record what the comparison needs."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from resnet_fn.parity.record.alone import changes_alone
from resnet_fn.parity.record.common import check_scalar
from resnet_fn.parity.record.optimizer_settings import torch_settings
from resnet_fn.parity.record.randomness import is_apart
from resnet_fn.parity.record.torch_module import call, copied, dtype_of, outputs_of, state, tensors
from resnet_fn.parity.record.torch_recipe import Average, recipe_optimizer
from resnet_fn.parity.trace.data import RATE, STATISTICS, Run, Settings
from resnet_fn.parity.trace.made_up import made_up
from resnet_fn.parity.trace.plan import LATER, Task
from resnet_fn.parity.trace.tree import Arrays, Batch, Tree, split

Loss = Callable[[Any, Any], torch.Tensor]

MakeOptimizer = Callable[[torch.nn.Module], torch.optim.Optimizer]

# float16 by autocasting
_DTYPES = {"float32": torch.float32, "float64": torch.float64, "float16": torch.float32}


def run_torch(
    module: torch.nn.Module,
    task: Task,
    loss: Loss,
    make_optimizer: MakeOptimizer | None,
    precision: str,
    updates: int | None = None,
    last: Arrays | None = None,
) -> Run:
    """Train a copy of a torch module for a few updates, and record what the comparison needs.

    `precision` is "float32", "float64", or "float16" for automatic mixed precision. If `updates` is
    None, all updates of the task are made. If `last` is given, the trace's `last_outputs` are
    computed with the weights in `last`.
    """
    run, batches = TorchRun(module, task, loss, precision), task.batches
    module, parameters = run.module, run.parameters
    optimizer, set_rate = optimizer_of(module, task, make_optimizer)
    average = Average(module, task.recipe, task.updates_per_epoch) if task.recipe.ema else None
    trace = Run(run.evaluate(batches[0]), start=state(module), rates=task.rates)
    buffers = {name: one.clone() for name, one in module.named_buffers()}
    for update, batch in enumerate(batches[:updates]):
        set_rate(trace.rates[update])
        optimizer.zero_grad()
        value, outputs, parts = run.backward(batch)
        trace.losses.append(value)
        trace.train_outputs.append(outputs)
        if update == 0:
            trace.gradients, trace.parts = run.gradients(), parts
        limit = task.recipe.clip_norm or float("inf")
        trace.norms.append(float(torch.nn.utils.clip_grad_norm_(list(parameters.values()), limit)))
        if update == 0:
            trace.clipped = run.gradients()
        optimizer.step()
        if average is not None:
            average.update(module)
        if update < LATER:
            trace.after.append(state(module))
        if update + 1 == min(LATER, len(batches)):
            trace.last_outputs = run.evaluate(
                batches[0], load(copied(module), last) if last else module
            )
            trace.moved = _moved(module, buffers, task.first[0])
    if average is not None:
        trace.average = state(average.module)
    return trace


def load(module: torch.nn.Module, values: Arrays) -> torch.nn.Module:
    """Copy values into a module, by name."""
    module.load_state_dict(
        {name: torch.from_numpy(np.array(one)) for name, one in values.items()}, strict=False
    )
    return module


def on_batch(
    module: torch.nn.Module, task: Task, batch: Batch, loss: Loss, precision: str, start: Arrays
) -> Run:
    """Return the trace of a copy of a module on one batch, without an update."""
    run = TorchRun(module, task, loss, precision)
    trace = Run(run.evaluate(batch), start=start, rates=[])
    value, outputs, _ = run.backward(batch)
    trace.losses, trace.train_outputs, trace.gradients = [value], [outputs], run.gradients()
    return trace


class TorchRun:
    """Runs a copy of a module, in one precision, on the batches of a task."""

    def __init__(self, module: torch.nn.Module, task: Task, loss: Loss, precision: str) -> None:
        self.task, self.loss, self.dtype = task, loss, _DTYPES[precision]
        self.module = copied(module).to(self.dtype)
        self.parameters = {
            name: one for name, one in self.module.named_parameters() if one.requires_grad
        }
        self.autocast = functools.partial(
            torch.autocast, "cpu", torch.float16, enabled=precision == "float16"
        )
        # The loss scale, without which small gradients would underflow.
        self.scale = task.recipe.loss_scale if precision == "float16" else 1.0

    def evaluate(self, batch: Batch, module: torch.nn.Module | None = None) -> Arrays:
        """Return the outputs of the copy, or of `module`, on a batch in evaluation mode."""
        net = self.module if module is None else module
        with torch.no_grad(), self.autocast():
            return outputs_of(call(net.eval(), tensors(batch[0], self.dtype)))

    def backward(self, batch: Batch) -> tuple[float, Arrays, list[Arrays]]:
        """Run a batch forward and backward in training mode. Before the call, `parameter.grad` must
        be zero or None.

        Returns the mean loss, the outputs of the last micro-batch, and the gradients of each
        micro-batch. With a single micro-batch, the list of gradients is empty. Call `gradients`
        instead.
        """
        self.module.train()
        total, parts, count = 0.0, list[Arrays](), self.task.accumulate
        before = self.gradients()
        for inputs, labels in split(tuple(batch), count):
            with self.autocast():
                outputs = call(self.module, tensors(inputs, self.dtype))
            half = isinstance(outputs, torch.Tensor) and outputs.dtype == torch.float16
            value = scalar(
                self.loss(outputs.to(self.dtype) if half else outputs, tensors(labels, self.dtype))
            )
            (value * (self.scale / count)).backward()
            total += float(value.detach()) / count
            if count > 1:
                now = self.gradients()
                parts.append(
                    {name: (now[name] - before[name]) * (count / self.scale) for name in now}
                )
                before = now
        for parameter in self.parameters.values():
            if self.scale != 1.0 and parameter.grad is not None:
                parameter.grad /= self.scale
        return total, outputs_of(outputs), parts

    def gradients(self) -> Arrays:
        """Return the gradients by parameter name. A parameter without a gradient gets zeros."""
        return {
            name: np.zeros(tuple(one.shape), np.float32)
            if one.grad is None
            else one.grad.numpy().copy()
            for name, one in self.parameters.items()
        }


def _moved(module: torch.nn.Module, first: dict[str, torch.Tensor], inputs: Tree) -> dict[str, str]:
    """For each buffer that training changed, return the mode in which its change alters an output,
    or "" if none.
    """

    @functools.cache  # without `name`, outputs are used again for each buffer
    def outputs(train: bool, name: str = "") -> Arrays:
        one = copied(module).train(train)
        if name:
            layer, _, leaf = name.rpartition(".")
            setattr(one.get_submodule(layer), leaf, first[name].clone())
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)
            return outputs_of(call(one, tensors(inputs, dtype_of(module))))

    changes: dict[str, str] = {}
    for name, value in module.named_buffers():
        before = first.get(name)
        if name.rpartition(".")[2] in STATISTICS or before is None or before.shape != value.shape:
            continue
        counts = (
            value.numel() == 1 and value.dtype != torch.bool and float(value - before).is_integer()
        )
        if counts or torch.equal(before, value):
            continue
        modes = {"evaluation": False, "training": True}.items()
        changes[name] = next(
            (mode for mode, train in modes if is_apart(outputs(train), outputs(train, name))), ""
        )
    return changes


def optimizer_of(
    module: torch.nn.Module, task: Task, make_optimizer: MakeOptimizer | None
) -> tuple[torch.optim.Optimizer, Callable[[float], None]]:
    """Return the optimizer, and a function that sets the learning rates of its groups."""
    optimizer = make_optimizer(module) if make_optimizer else recipe_optimizer(task.recipe, module)
    # Each group keeps the ratio of its rate to the largest group's rate.
    largest = max(group["lr"] for group in optimizer.param_groups) or 1.0
    shares = [group["lr"] / largest if make_optimizer else 1.0 for group in optimizer.param_groups]

    def set_rate(rate: float) -> None:
        for group, share in zip(optimizer.param_groups, shares, strict=True):
            group["lr"] = rate * share

    return optimizer, set_rate


def settings_of_optimizer(
    module: torch.nn.Module, task: Task, make_optimizer: MakeOptimizer | None
) -> Settings:
    """Return the settings of the optimizer of a module, by setting and parameter."""
    module = copied(module)
    optimizer, _ = optimizer_of(module, task, make_optimizer)
    names = {id(one): name for name, one in module.named_parameters() if one.requires_grad}
    settings = torch_settings(optimizer.param_groups, names)
    if not make_optimizer:  # the recipe's optimizer has no learning rate of its own
        del settings[RATE]
    return settings


def optimizer_alone(
    module: torch.nn.Module, task: Task, make_optimizer: MakeOptimizer | None
) -> dict[int, Arrays]:
    """Update random weights with random gradients.

    Return the changes after the first and the last update, by name.
    """
    module = copied(module)
    parameters = {
        name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad
    }
    weights, gradients = made_up(
        {name: tuple(parameter.shape) for name, parameter in parameters.items()}
    )
    for name, parameter in parameters.items():
        parameter.data.copy_(torch.from_numpy(weights[name]))
    optimizer, set_rate = optimizer_of(module, task, make_optimizer)

    def update(gradients: Arrays, rate: float) -> None:
        set_rate(rate)
        for name, parameter in parameters.items():
            parameter.grad = torch.from_numpy(gradients[name]).to(parameter.dtype)
        optimizer.step()

    return changes_alone(
        weights, gradients, update, lambda: {n: p.detach().numpy() for n, p in parameters.items()}
    )


def scalar(value: Any) -> torch.Tensor:
    """Return a loss as a tensor without axes, or raise ValueError."""
    check_scalar("the reference", value, torch.Tensor)
    return value.reshape(())
