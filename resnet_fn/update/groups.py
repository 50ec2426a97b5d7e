"""These functions choose a weight decay and a learning-rate factor for each parameter of a net."""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mindspore import Parameter, Tensor, mint, nn

from resnet_fn.config.recipe import Recipe
from resnet_fn.models.batchnorm import BATCHNORMS
from resnet_fn.models.parts import HEAD, group_of, layer_numbers

_NORM_LAYERS = (
    *BATCHNORMS,
    nn.LayerNorm,
    nn.GroupNorm,
    mint.nn.LayerNorm,
    mint.nn.GroupNorm,
    nn.InstanceNorm1d,
    nn.InstanceNorm2d,
    nn.InstanceNorm3d,
)

# Parameters in the order of the gradients. Each is alone or in a tuple: (parameter, weight decay[,
# rate factor]).
Groups = Sequence[Parameter | tuple[Parameter, float] | tuple[Parameter, float, float]]


def parameter_groups(recipe: Recipe, net: nn.Cell) -> list[tuple[Parameter, float, float]]:
    """Combine each of `net.trainable_params()` with the recipe's weight decay and a factor of the
    learning rate.

    The last layer has the rate factor `head_lr_factor`. The stem, or a block, with n blocks after
    it has `layer_decay`^(n + 1), as in BEiT (arXiv 2106.08254) and timm.
    """
    numbers = layer_numbers([parameter.name for parameter in net.get_parameters()])
    last = max(numbers.values())

    def factor(name: str) -> float:
        if group_of(name) == HEAD:
            return recipe.head_lr_factor
        return recipe.layer_decay ** (last - numbers[name])

    decays = weight_decay_groups(net, recipe.weight_decay, recipe.decay_all)
    return [(parameter, decay, factor(parameter.name)) for parameter, decay in decays]


def shown_factor(factors: Iterable[float]) -> float:
    """Return the factor of the rate in logs and tables: 1 if a parameter has it, or the largest."""
    factors = tuple(factors)
    return 1.0 if 1.0 in factors else max(factors)


def describe_rates(learning_rate: float, factors: Mapping[str, float]) -> str:
    """Describe the peak rates of all parts of a net, for example "stem to layer4 0.01, fc 0.1".

    `factors` maps parameter names to rate factors. If all factors are 1, the result is "".
    """
    if {*factors.values()} == {1.0}:
        return ""
    by_part: dict[str, list[float]] = {}
    for name, factor in factors.items():
        by_part.setdefault(group_of(name), []).append(learning_rate * factor)
    texts = {
        part: _span(f"{min(rates):.3g}", f"{max(rates):.3g}") for part, rates in by_part.items()
    }
    spans = []
    for text, group in itertools.groupby(texts, texts.get):
        parts = list(group)
        spans.append(f"{_span(parts[0], parts[-1])} {text}")
    return ", ".join(spans)


def _span(first: str, last: str) -> str:
    return first if first == last else f"{first} to {last}"


def weight_decay_groups(
    net: nn.Cell, weight_decay: float, decay_all: bool = False
) -> list[tuple[Parameter, float]]:
    """Pair each trainable parameter with its weight decay, in the order of
    `net.trainable_params()`.

    Biases and the parameters of norm layers get a weight decay of 0, unless `decay_all` is True.
    Norm layers are recognised by their class, so that a layer scale named `gamma` is decayed like
    other weights.
    """
    spared = {
        id(parameter)
        for _, cell in net.cells_and_names()
        for leaf, parameter in cell.parameters_and_names(expand=False)
        # bias_ih_l0, in_proj_bias
        if isinstance(cell, _NORM_LAYERS) or re.fullmatch("bias|bias_.*|.*_bias", leaf)
    }
    return [
        (parameter, weight_decay if decay_all or id(parameter) not in spared else 0.0)
        for parameter in net.trainable_params()
    ]


def unzip_groups(groups: Groups) -> tuple[Any, ...]:
    """Split groups into three tuples: parameters, weight decays (default 0) and learning-rate
    factors (default 1).
    """
    rows: Any = [groups] if isinstance(groups, nn.Cell) else groups
    rows = [(row, 0.0) if isinstance(row, Parameter) else row for row in rows]
    for row in rows:
        if not isinstance(row, tuple) or not isinstance(row[0], Parameter):
            fix = "give net.trainable_params(), or weight_decay_groups(net, 5e-4)"
            raise ValueError(
                f"groups: {type(row).__name__} is neither a Parameter nor (Parameter, decay); {fix}"
            )
    return tuple(zip(*((*row, 1.0)[:3] for row in rows), strict=True)) or ((), (), ())


def scaled(learning_rate: Tensor, factor: float) -> Tensor:
    """Return learning_rate · factor."""
    # for factor 1, no operation is compiled
    return learning_rate if factor == 1.0 else learning_rate * factor
