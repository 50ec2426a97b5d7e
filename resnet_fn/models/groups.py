"""What weight decay and what learning rate each parameter of a net has."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from mindspore import Parameter, Tensor, mint, nn

from resnet_fn.config.recipe import Recipe
from resnet_fn.models.parts import HEAD, group_of

_NORM_LAYERS = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm, nn.LayerNorm, nn.GroupNorm),
    *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, mint.nn.LayerNorm, mint.nn.GroupNorm),
    *(mint.nn.BatchNorm1d, mint.nn.BatchNorm2d, mint.nn.BatchNorm3d, mint.nn.SyncBatchNorm),
)

# In the order of the gradients: a parameter, which then has no weight decay; (parameter, weight decay); or (parameter,
# weight decay, factor of its learning rate).
Groups = Sequence[Parameter | tuple[Parameter, float] | tuple[Parameter, float, float]]


def parameter_groups(recipe: Recipe, net: nn.Cell) -> list[tuple[Parameter, float, float]]:
    """Every trainable parameter of a net with the recipe's weight decay and factor of the learning rate.

    Layer decay as timm's `param_groups_layer_decay` and BEiT (arXiv 2106.08254) have it: the last layer has 1, each
    block before it `layer_decay` times the next block's, the stem the least. `head_learning_rate` is the last layer's.
    """
    numbers = layer_numbers(parameter.name for parameter in net.get_parameters())
    last = max(numbers.values())

    def factor(name: str) -> float:
        if recipe.head_learning_rate and group_of(name) == HEAD:
            return recipe.head_learning_rate / recipe.learning_rate
        return recipe.layer_decay ** (last - numbers[name])

    decays = weight_decay_groups(net, recipe.weight_decay, recipe.decay_all)
    return [(parameter, decay, factor(parameter.name)) for parameter, decay in decays]


def weight_decay_groups(net: nn.Cell, weight_decay: float, decay_all: bool = False) -> list[tuple[Parameter, float]]:
    """Pair every trainable parameter with its weight decay, in the order of `net.trainable_params()`.

    Parameters of norm layers and biases have none, but with `decay_all`. What a norm layer is, its class says and not
    its parameters' names: a layer scale that is called `gamma` is a weight like others. (Groups are explicit because
    `nn.Momentum` with a plain list leaves BatchNorm out silently.)
    """
    spared = {
        id(parameter)
        for _, cell in net.cells_and_names()
        for leaf, parameter in cell.parameters_and_names(expand=False)
        if isinstance(cell, _NORM_LAYERS) or _is_bias(leaf)
    }
    return [
        (parameter, weight_decay if decay_all or id(parameter) not in spared else 0.0)
        for parameter in net.trainable_params()
    ]


def _is_bias(leaf: str) -> bool:
    return leaf == "bias" or leaf.startswith("bias_") or leaf.endswith("_bias")  # bias_ih_l0, in_proj_bias


def layer_numbers(paths: Iterable[str]) -> dict[str, int]:
    """Which layer each of all a net's parameters belongs to: 0 is the stem, then every block, then the last layer."""
    layers = {path: _layer_of(path) for path in paths}
    order = {layer: number for number, layer in enumerate(sorted(set(layers.values())))}
    return {path: order[layer] for path, layer in layers.items()}


def _layer_of(path: str) -> tuple[int, ...]:
    if match := re.match(r"layer(\d+)\.(\d+)\.", path):
        return 1, int(match[1]), int(match[2])
    return (2 if group_of(path) == HEAD else 0,)


def columns(groups: Groups) -> tuple[Any, ...]:
    """Parameters, weight decays and learning rates' factors, a tuple of each; a row without a factor has 1.

    Compiled functions cannot unpack rows that mix Parameters and numbers.

    Raises:
        ValueError: a row is none of `Groups`.
    """
    rows: Any = [groups] if isinstance(groups, nn.Cell) else groups
    rows = [(row, 0.0) if isinstance(row, Parameter) else row for row in rows]
    for row in rows:
        if not isinstance(row, tuple) or not isinstance(row[0], Parameter):
            fix = "give net.trainable_params(), or weight_decay_groups(net, 5e-4)"
            raise ValueError(f"groups: {type(row).__name__} is no Parameter and no (Parameter, weight decay); {fix}")
    return tuple(zip(*((*row, 1.0)[:3] for row in rows), strict=True)) or ((), (), ())


def scaled(learning_rate: Tensor, factor: float) -> Tensor:
    """A parameter's own learning rate, inside jit.

    The very tensor where the factor is 1: the compiled function is then the one without factors.
    """
    return learning_rate if factor == 1.0 else learning_rate * factor
