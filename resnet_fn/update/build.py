"""The optimizer of a recipe."""

from collections.abc import Callable

from mindspore import nn

from resnet_fn.config.recipe import Recipe
from resnet_fn.models.parts import HEAD, group_of, layer_numbers
from resnet_fn.update.adam import adam, adamw
from resnet_fn.update.optimizer import Groups, Optimizer, lamb, lars, momentum_sgd, weight_decay_groups


def make_optimizer(recipe: Recipe, net: nn.Cell) -> Optimizer:
    """The recipe's optimizer for a net."""
    groups = parameter_groups(recipe, net)
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


def parameter_groups(recipe: Recipe, net: nn.Cell) -> Groups:
    """Every trainable parameter of a net with the recipe's weight decay and factor of the learning rate.

    Layer decay as timm's `param_groups_layer_decay` and BEiT (arXiv 2106.08254) have it: the last layer has 1, each
    block before it `layer_decay` times its follower's, the stem the least. `head_learning_rate` is the last layer's.
    """
    numbers = layer_numbers(parameter.name for parameter in net.get_parameters())
    last = max(numbers.values())

    def factor(name: str) -> float:
        if recipe.head_learning_rate and group_of(name) == HEAD:
            return recipe.head_learning_rate / recipe.learning_rate
        return recipe.layer_decay ** (last - numbers[name])

    decays = weight_decay_groups(net, recipe.weight_decay, recipe.decay_all)
    return [(parameter, decay, factor(parameter.name)) for parameter, decay in decays]
