"""Initialisations by name. Where a port's accuracy differs, look here first (conv and Dense defaults differ)."""

import math
from collections.abc import Callable

import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.common.initializer import (
    HeNormal,
    HeUniform,
    Initializer,
    TruncatedNormal,
    Uniform,
    XavierUniform,
    initializer,
)

LayerInit = tuple[Callable[[int], Initializer], Callable[[int], Initializer], Callable[[int], Initializer | str]]


def _uniform_fan_in(fan_in: int) -> Initializer:
    # What torch's kaiming_uniform_(a=√5) comes to: U(−√(1/fan_in), √(1/fan_in)).
    return Uniform(math.sqrt(1.0 / fan_in))


def _truncated_normal(fan_in: int) -> Initializer:
    # a and b are bounds of the values (MindSpore 2.10), not multiples of sigma: two standard deviations.
    return TruncatedNormal(sigma=0.01, a=-0.02, b=0.02)


def _zeros(fan_in: int) -> str:
    return "zeros"


# name: (convolution weight, Dense weight, bias of either), each as a function of the layer's fan-in
INITIALISATIONS: dict[str, LayerInit] = {
    # torchvision's ResNet: He-normal over fan-out; torch.nn.Linear's own defaults.
    "torchvision": (lambda _: HeNormal(mode="fan_out", nonlinearity="relu"), _uniform_fan_in, _uniform_fan_in),
    # torch's layer defaults everywhere: what the accuracy-gap guide found to close the gap (92.98 against 91.96).
    "torch": (_uniform_fan_in, _uniform_fan_in, _uniform_fan_in),
    # MindSpore's GENet and ResNet scripts.
    "he_uniform": (lambda _: HeUniform(nonlinearity="relu"), _truncated_normal, _zeros),
    "xavier_uniform": (lambda _: XavierUniform(), _truncated_normal, _zeros),
}


def initialise(net: nn.Cell, name: str = "torchvision", zero_init_residual: bool = False) -> None:
    """Draw every convolution's and Dense layer's parameters anew; BatchNorm gets gamma 1, beta 0, mean 0, variance 1.

    The random numbers come from MindSpore's global seed (`mindspore.set_seed`), so they repeat across processes.

    Args:
        net: any Cell made of Conv2d, Dense and BatchNorm2d.
        name: a key of INITIALISATIONS.
        zero_init_residual: gamma 0 in the last BatchNorm of every block, so that blocks start as the identity
            (Goyal et al., arXiv 1706.02677).
    """
    if name not in INITIALISATIONS:
        raise ValueError(f"initialisation: {name!r} is unknown; use one of {', '.join(INITIALISATIONS)}")
    conv_init, dense_init, bias_init = INITIALISATIONS[name]
    for _, cell in net.cells_and_names():
        if isinstance(cell, nn.Conv2d):
            fan_in = _fan_in(cell.weight.shape)
            _draw(cell.weight, conv_init(fan_in))
            if cell.bias is not None:
                _draw(cell.bias, bias_init(fan_in))
        elif isinstance(cell, nn.Dense):
            fan_in = _fan_in(cell.weight.shape)
            _draw(cell.weight, dense_init(fan_in))
            if cell.bias is not None:
                _draw(cell.bias, bias_init(fan_in))
        elif isinstance(cell, nn.BatchNorm2d):
            ops.assign(cell.gamma, Tensor(np.ones(cell.gamma.shape, np.float32)))
            ops.assign(cell.beta, Tensor(np.zeros(cell.beta.shape, np.float32)))
            ops.assign(cell.moving_mean, Tensor(np.zeros(cell.gamma.shape, np.float32)))
            ops.assign(cell.moving_variance, Tensor(np.ones(cell.gamma.shape, np.float32)))
    if zero_init_residual:
        for _, cell in net.cells_and_names():
            last = getattr(cell, getattr(cell, "last_norm", ""), None)  # only blocks have one
            if isinstance(last, nn.BatchNorm2d):
                ops.assign(last.gamma, Tensor(np.zeros(last.gamma.shape, np.float32)))


def _fan_in(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape[1:]))


def _draw(parameter: Tensor, how: Initializer | str) -> None:
    ops.assign(parameter, initializer(how, parameter.shape, parameter.dtype).init_data())
