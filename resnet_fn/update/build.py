"""The optimizer of a recipe."""

from collections.abc import Callable

from mindspore import nn

from resnet_fn.config.recipe import Recipe
from resnet_fn.update.adam import adam, adamw
from resnet_fn.update.optimizer import Optimizer, lamb, lars, momentum_sgd, weight_decay_groups


def make_optimizer(recipe: Recipe, net: nn.Cell) -> Optimizer:
    """The recipe's optimizer for a net."""
    groups = weight_decay_groups(net, recipe.weight_decay, recipe.decay_all)
    moments: dict[str, float] = {"beta1": recipe.momentum, "beta2": recipe.beta2}
    if recipe.epsilon:
        moments["epsilon"] = recipe.epsilon
    optimizers: dict[str, Callable[[], Optimizer]] = {
        "sgd": lambda: momentum_sgd(groups, recipe.momentum, recipe.nesterov),
        "adam": lambda: adam(groups, **moments),
        "adamw": lambda: adamw(groups, **moments),
        "lars": lambda: lars(groups, recipe.momentum, recipe.trust_coefficient),
        "lamb": lambda: lamb(groups, **moments),
    }
    return optimizers[recipe.optimizer]()
