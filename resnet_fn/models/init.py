"""This module initialises the parameters of a net as PyTorch, torchvision or MindSpore's scripts
do.
"""

import math
from collections.abc import Callable

from mindspore import Parameter, nn, ops
from mindspore.common.initializer import (
    HeNormal,
    HeUniform,
    Initializer,
    TruncatedNormal,
    Uniform,
    XavierUniform,
)
from mindspore.common.initializer import initializer as make_initializer

from resnet_fn.models.layers import Dense

_assign = ops.Assign()


def _uniform_fan_in(fan_in: int) -> Initializer:
    # torch's kaiming_uniform_(a=√5): U(−√(1/fan_in), √(1/fan_in)).
    return Uniform(math.sqrt(1.0 / fan_in))


def _truncated_normal(fan_in: int) -> Initializer:
    # In MindSpore 2.10, a and b are bounds of the values, not multiples of sigma.
    return TruncatedNormal(sigma=0.01, a=-0.02, b=0.02)


# Each name has functions of fan-in for convolution weights, Dense weights and biases.
INITIALISATIONS: dict[str, tuple[Callable[[int], Initializer | str], ...]] = {
    "torchvision": (
        lambda _: HeNormal(mode="fan_out", nonlinearity="relu"),
        _uniform_fan_in,
        _uniform_fan_in,
    ),
    # The defaults of PyTorch's layers. In MindSpore's accuracy-gap guide they gave 92.98 % instead
    # of 91.96 %.
    "torch": (_uniform_fan_in, _uniform_fan_in, _uniform_fan_in),
    # As MindSpore's GENet and ResNet scripts.
    "he_uniform": (lambda _: HeUniform(nonlinearity="relu"), _truncated_normal, lambda _: "zeros"),
    "xavier_uniform": (lambda _: XavierUniform(), _truncated_normal, lambda _: "zeros"),
}


def initialise(net: nn.Cell, name: str = "torchvision", zero_init_residual: bool = False) -> None:
    """Initialise all Conv2d and Dense layers of a new net. BatchNorms start as MindSpore makes them.

    MindSpore's global seed determines the random numbers. If `zero_init_residual` is true, gamma is
    0 in the last BatchNorm of each block, so that residual branches start as zero (arXiv
    1706.02677).
    """
    if name not in INITIALISATIONS:
        raise ValueError(
            f"initialisation: {name!r} is unknown; use one of {', '.join(INITIALISATIONS)}"
        )
    conv_init, dense_init, bias_init = INITIALISATIONS[name]
    for _, cell in net.cells_and_names():
        if isinstance(cell, nn.Conv2d | Dense):
            fan_in = math.prod(cell.weight.shape[1:])
            weight_init = conv_init if isinstance(cell, nn.Conv2d) else dense_init
            _fill(cell.weight, weight_init(fan_in))
            if cell.bias is not None:
                _fill(cell.bias, bias_init(fan_in))
        if zero_init_residual and hasattr(cell, "last_norm"):  # a block
            last = getattr(cell, cell.last_norm)
            if isinstance(last, nn.BatchNorm2d):
                _fill(last.gamma, "zeros")


def _fill(parameter: Parameter, how: Initializer | str) -> None:
    _assign(parameter, make_initializer(how, parameter.shape, parameter.dtype).init_data())
