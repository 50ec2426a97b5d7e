"""The recipe's optimizer in torch."""

from typing import Any

import torch

from resnet_fn.config.recipe import Recipe


def decay_groups(module: torch.nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """torch.optim parameter groups: weight decay on all but norm layers' parameters and biases."""
    norms = (torch.nn.modules.batchnorm._NormBase, torch.nn.GroupNorm, torch.nn.LayerNorm)
    decayed: list[Any] = []
    spared: list[Any] = []
    for layer in module.modules():
        for leaf, parameter in layer.named_parameters(recurse=False):
            if parameter.requires_grad:
                (spared if leaf == "bias" or isinstance(layer, norms) else decayed).append(parameter)
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": spared, "weight_decay": 0.0}]


def recipe_optimizer(recipe: Recipe, module: torch.nn.Module) -> torch.optim.Optimizer:
    """The recipe's optimizer for a module."""
    if recipe.optimizer != "sgd" or recipe.decay_all:
        raise ValueError(f"optimizer: the ladder does not compare {recipe.optimizer} like this yet")
    groups = decay_groups(module, recipe.weight_decay)
    return torch.optim.SGD(groups, lr=1.0, momentum=recipe.momentum, nesterov=recipe.nesterov)


class Average:
    """The moving average of a module's weights."""

    def __init__(self, module: torch.nn.Module, recipe: Recipe) -> None:
        self.module = module
        raise ValueError("ema: the ladder does not compare it yet")

    def update(self, module: torch.nn.Module) -> None:
        """Follow an update."""
