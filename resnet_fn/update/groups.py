"""Each parameter of a net has a weight decay and a factor of the learning rate."""

import re
from collections.abc import Sequence
from typing import Any

from mindspore import Parameter, Tensor, mint, nn

from resnet_fn.config.recipe import Recipe
from resnet_fn.models.parts import HEAD, group_of, layer_numbers

_NORM_LAYERS = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm, nn.LayerNorm, nn.GroupNorm),
    *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, mint.nn.LayerNorm, mint.nn.GroupNorm),
    *(mint.nn.BatchNorm1d, mint.nn.BatchNorm2d, mint.nn.BatchNorm3d, mint.nn.SyncBatchNorm),
)

# In the order of the gradients: parameters alone, or (parameter, weight decay[, factor of the learning rate]).
Groups = Sequence[Parameter | tuple[Parameter, float] | tuple[Parameter, float, float]]


def parameter_groups(recipe: Recipe, net: nn.Cell) -> list[tuple[Parameter, float, float]]:
    """Return every trainable parameter of a net with the recipe's weight decay and factor of the learning rate.

    Layer decay follows timm's `param_groups_layer_decay` and BEiT (arXiv 2106.08254): the last layer has factor 1, each
    block has the next block's factor times `layer_decay`. `head_learning_rate`, if above 0, is the last layer's rate.
    """
    numbers = layer_numbers([parameter.name for parameter in net.get_parameters()])
    last = max(numbers.values())

    def factor(name: str) -> float:
        if recipe.head_learning_rate and group_of(name) == HEAD:
            return recipe.head_learning_rate / recipe.learning_rate
        return recipe.layer_decay ** (last - numbers[name])

    decays = weight_decay_groups(net, recipe.weight_decay, recipe.decay_all)
    return [(parameter, decay, factor(parameter.name)) for parameter, decay in decays]


def weight_decay_groups(net: nn.Cell, weight_decay: float, decay_all: bool = False) -> list[tuple[Parameter, float]]:
    """Pair every trainable parameter with its weight decay, in the order of `net.trainable_params()`.

    Parameters of norm layers and biases get 0 unless `decay_all` is set. Norm layers are recognised by class, not by
    name: a layer scale called `gamma` is decayed like other weights.
    """
    spared = {
        id(parameter)
        for _, cell in net.cells_and_names()
        for leaf, parameter in cell.parameters_and_names(expand=False)
        if isinstance(cell, _NORM_LAYERS) or re.fullmatch("bias|bias_.*|.*_bias", leaf)  # bias_ih_l0, in_proj_bias
    }
    return [
        (parameter, weight_decay if decay_all or id(parameter) not in spared else 0.0)
        for parameter in net.trainable_params()
    ]


def unzip_groups(groups: Groups) -> tuple[Any, ...]:
    """Return three tuples, which compiled functions can read: parameters, decays (default 0), factors (default 1)."""
    rows: Any = [groups] if isinstance(groups, nn.Cell) else groups
    rows = [(row, 0.0) if isinstance(row, Parameter) else row for row in rows]
    for row in rows:
        if not isinstance(row, tuple) or not isinstance(row[0], Parameter):
            fix = "give net.trainable_params(), or weight_decay_groups(net, 5e-4)"
            raise ValueError(f"groups: {type(row).__name__} is no Parameter and no (Parameter, weight decay); {fix}")
    return tuple(zip(*((*row, 1.0)[:3] for row in rows), strict=True)) or ((), (), ())


def scaled(learning_rate: Tensor, factor: float) -> Tensor:
    """Return learning_rate · factor, inside jit; for factor 1 the tensor itself: no operation is compiled."""
    return learning_rate if factor == 1.0 else learning_rate * factor
