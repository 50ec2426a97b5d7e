"""The reference's training step: plain torch, as its documentation says to write it."""

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from resnet_fn.parity.torch_side.call import call, tensors
from resnet_fn.parity.torch_side.losses import recipe_loss
from resnet_fn.parity.torch_side.optimizers import Average, recipe_optimizer
from resnet_fn.parity.traces.batches import Arrays, named_leaves, split
from resnet_fn.parity.traces.trace import LATER, Task, Trace

Loss = Callable[[Any, Any], torch.Tensor]
MakeOptimizer = Callable[[torch.nn.Module], torch.optim.Optimizer]

_STATE = {"momentum_buffer": "momentum", "exp_avg": "momentum", "exp_avg_sq": "variance"}


def state(module: torch.nn.Module) -> Arrays:
    """All parameters and statistics of a torch module as arrays, without BatchNorm's batch counters."""
    return {
        name: value.detach().cpu().numpy().copy()
        for name, value in module.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }


def outputs_of(value: Any) -> Arrays:
    """What a module returned, by name; "logits" where it is one tensor."""
    return {
        name: leaf.detach().cpu().double().numpy() if leaf.dtype == torch.float64 else leaf.detach().float().numpy()
        for name, leaf in named_leaves(value, "logits").items()
        if isinstance(leaf, torch.Tensor)
    }


def run_torch(
    module: torch.nn.Module,
    task: Task,
    loss: Loss | None = None,
    make_optimizer: MakeOptimizer | None = None,
    precision: str = "float32",
) -> Trace:
    """Train a copy of a torch module for a few updates and record everything that the ladder compares.

    Args:
        module: it is not changed.
        task: what to do.
        loss: (outputs, labels) → scalar; None: the recipe's.
        make_optimizer: made for the module; None: the recipe's. Every group's learning rate is set before each
            update, to the task's times the group's own share of the largest.
        precision: "float32", "float64", or "float16": automatic mixed precision.
    """
    dtype = torch.float64 if precision == "float64" else torch.float32
    module = copy.deepcopy(module).to(dtype)
    loss = loss or recipe_loss(task.recipe)
    module.eval()
    with torch.no_grad(), _precision(precision):
        eval_outputs = outputs_of(call(module, tensors(task.batches[0][0], dtype)))
    module.train()
    optimizer = make_optimizer(module) if make_optimizer else recipe_optimizer(task.recipe, module)
    largest = max(group["lr"] for group in optimizer.param_groups) or 1.0
    shares = [group["lr"] / largest if make_optimizer else 1.0 for group in optimizer.param_groups]
    scale = task.recipe.loss_scale if precision == "float16" else 1.0  # else small gradients would underflow
    average = Average(module, task.recipe, task.updates_per_epoch) if task.recipe.ema else None
    trace = Trace(eval_outputs, start=state(module), rates=task.rates)
    parameters = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    for update, (inputs, labels) in enumerate(task.batches):
        for group, share in zip(optimizer.param_groups, shares, strict=True):
            group["lr"] = task.rates[update] * share
        optimizer.zero_grad()
        total, before = 0.0, None
        for micro_inputs, micro_labels in split((inputs, labels), task.accumulate):
            with _precision(precision):
                outputs = call(module, tensors(micro_inputs, dtype))
            value = _scalar(loss(_in_full(outputs, dtype), tensors(micro_labels, dtype)))
            (value * (scale / task.accumulate)).backward()
            total += float(value.detach()) / task.accumulate
            if update == 0 and task.accumulate > 1:
                now = _gradients(parameters)
                part = now if before is None else {name: now[name] - before[name] for name in now}
                trace.parts.append({name: array * (task.accumulate / scale) for name, array in part.items()})
                before = now
        trace.losses.append(total)
        trace.train_outputs.append(outputs_of(outputs))
        if scale != 1.0:
            for parameter in parameters.values():
                if parameter.grad is not None:
                    parameter.grad /= scale
        if update == 0:
            trace.gradients = _gradients(parameters)
        limit = task.recipe.clip_norm or float("inf")
        trace.norms.append(float(torch.nn.utils.clip_grad_norm_(list(parameters.values()), limit)))
        if update == 0:
            trace.clipped = _gradients(parameters)
        optimizer.step()
        if average is not None:
            average.update(module)
        if update < LATER:
            trace.after.append(state(module))
        if update == 0:
            trace.state = _optimizer_state(optimizer, parameters)
    if average is not None:
        trace.average = state(average.module)
    return trace


@contextlib.contextmanager
def _precision(precision: str) -> Iterator[None]:
    with torch.autocast("cpu", torch.float16, enabled=precision == "float16"):
        yield


def _in_full(outputs: Any, dtype: torch.dtype) -> Any:
    """Half-precision outputs in float32, as a loss is computed; everything else as it is."""
    if isinstance(outputs, torch.Tensor):
        return outputs.to(dtype) if outputs.dtype == torch.float16 else outputs
    return outputs


def _scalar(value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor) or value.numel() != 1:
        what = f"shape {list(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
        raise ValueError(f"loss of the reference: it returns {what}, not one number; return the mean over the batch")
    return value.reshape(())


def _gradients(parameters: dict[str, torch.nn.Parameter]) -> Arrays:
    return {
        name: np.zeros(tuple(parameter.shape), np.float32) if parameter.grad is None else parameter.grad.numpy().copy()
        for name, parameter in parameters.items()
    }


def _optimizer_state(optimizer: torch.optim.Optimizer, parameters: dict[str, torch.nn.Parameter]) -> dict[str, Arrays]:
    found: dict[str, Arrays] = {}
    for name, parameter in parameters.items():
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
                found.setdefault(_STATE.get(key, key), {})[name] = value.numpy().copy()
    return found
