"""The optimizer of a torch module: make it, read it, run it alone."""

import itertools
from collections.abc import Callable

import numpy as np
import torch

from resnet_fn.parity.record.alone import changes_alone
from resnet_fn.parity.record.optimizer_settings import torch_settings
from resnet_fn.parity.record.torch_copy import copied
from resnet_fn.parity.record.torch_module import array_of
from resnet_fn.parity.record.torch_recipe import recipe_optimizer
from resnet_fn.parity.record.torch_run import MakeOptimizer
from resnet_fn.parity.trace.data import RATE_SETTING, ParameterSettings
from resnet_fn.parity.trace.made_up import made_up
from resnet_fn.parity.trace.plan import OptimizerPlan
from resnet_fn.parity.trace.returned import as_complex, shape_of
from resnet_fn.parity.trace.tree import Arrays


def optimizer_of(
    module: torch.nn.Module, plan: OptimizerPlan, make_optimizer: MakeOptimizer | None
) -> tuple[torch.optim.Optimizer, Callable[[float], None]]:
    """Return the optimizer, and a function that sets the learning rates of its groups.

    An optimizer of other arrays than the module's parameters raises ValueError.
    """
    optimizer = make_optimizer(module) if make_optimizer else recipe_optimizer(plan, module)
    # Each group keeps the ratio of its rate to the largest group's rate.
    groups = optimizer.param_groups
    known = {*map(id, module.parameters())}
    for parameter in itertools.chain.from_iterable(group["params"] for group in groups):
        if id(parameter) not in known:
            raise ValueError(
                f"optimizer: {type(optimizer).__name__} updates an array {list(parameter.shape)} "
                "that is no parameter of the net; make it one, as nothing else is compared"
            )
    largest = max(group["lr"] for group in groups) or 1.0
    shares = [group["lr"] / largest if make_optimizer else 1.0 for group in groups]

    def set_rate(rate: float) -> None:
        for group, share in zip(optimizer.param_groups, shares, strict=True):
            group["lr"] = rate * share

    return optimizer, set_rate


def settings_of_optimizer(
    module: torch.nn.Module, plan: OptimizerPlan, make_optimizer: MakeOptimizer | None
) -> ParameterSettings:
    """Return the settings of the optimizer of a module, by setting and parameter."""
    module = copied(module)
    optimizer, _ = optimizer_of(module, plan, make_optimizer)
    names = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            names[id(parameter)] = name
    settings = torch_settings(optimizer.param_groups, names)
    if not make_optimizer:  # the recipe's optimizer has no learning rate of its own
        del settings[RATE_SETTING]
    return settings


def optimizer_alone(
    module: torch.nn.Module, plan: OptimizerPlan, make_optimizer: MakeOptimizer | None
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

    return changes_alone(weights, gradients, update, lambda name: array_of(parameters[name]))


def _like(parameter: torch.Tensor, array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(as_complex(array) if parameter.dtype.is_complex else array)
