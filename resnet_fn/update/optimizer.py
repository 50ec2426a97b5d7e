"""Momentum SGD as a function of gradients, with parameter groups."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import mindspore
from mindspore import Parameter, Tensor, nn, ops


class Optimizer(NamedTuple):
    """An optimizer: its state, and the function that updates weights and state in place, inside jit."""

    state: tuple[Parameter, ...]
    update: Callable[[Sequence[Tensor], Tensor], None]


def weight_decay_groups(net: nn.Cell, weight_decay: float, decay_all: bool = False) -> list[tuple[Parameter, float]]:
    """Pair every trainable parameter with its weight decay: none on gamma, beta and bias, but with `decay_all`.

    The groups are explicit because `nn.Momentum` with a plain list leaves BatchNorm out silently.
    """
    return [
        (parameter, weight_decay if decay_all or not _is_exempt(parameter) else 0.0)
        for parameter in net.trainable_params()
    ]


def _is_exempt(parameter: Parameter) -> bool:
    return parameter.name.rsplit(".", 1)[-1] in ("gamma", "beta", "bias")


def momentum_sgd(groups: Sequence[tuple[Parameter, float]], momentum: float = 0.9, nesterov: bool = False) -> Optimizer:
    """SGD with momentum, as `torch.optim.SGD` computes it (dampening 0, coupled weight decay).

    g ← g + decay · p;  v ← momentum · v + g;  p ← p − lr · (g + momentum · v)  with Nesterov, else  p ← p − lr · v.

    Args:
        groups: (parameter, weight decay) pairs, in the order of the gradients that `update` takes.
        momentum: the momentum coefficient, 0 <= momentum < 1.
        nesterov: Nesterov's form (Sutskever et al., 2013).

    Returns:
        `state`: one buffer `momentum.<parameter>` for each parameter, float32, zeros at first.
        `update(gradients, learning_rate)`: learning_rate is a float32 scalar tensor.
    """
    if nesterov and momentum == 0:
        raise ValueError("nesterov: needs momentum above 0; give --momentum 0.9 or --no-nesterov")
    buffers = tuple(
        Parameter(ops.zeros_like(parameter), name=f"momentum.{parameter.name}", requires_grad=False)
        for parameter, _ in groups
    )
    # ops.SGD: one kernel per parameter, and right on CPU, where ops.ApplyMomentum ignores Nesterov silently and
    # mint.optim.SGD updates nothing. Its `stat` input, when zero, turns off the first-step special case; the
    # CPU kernel wants it in the parameter's shape and never writes it then, so equal shapes share one.
    stats: dict[tuple[int, ...], Parameter] = {}
    for index, (parameter, _) in enumerate(groups):
        if parameter.shape not in stats:
            name = f"sgd_stat.{index}"
            stats[parameter.shape] = Parameter(ops.zeros_like(parameter), name=name, requires_grad=False)
    by_decay = {decay: ops.SGD(0.0, decay, nesterov) for _, decay in groups}
    # Plain tuples side by side: jit cannot unpack rows that mix operations and Parameters.
    parameters = tuple(parameter for parameter, _ in groups)
    kernels = tuple(by_decay[decay] for _, decay in groups)
    zeros = tuple(stats[parameter.shape] for parameter in parameters)
    coefficient = Tensor(momentum, mindspore.float32)

    def update(gradients: Sequence[Tensor], learning_rate: Tensor) -> None:
        for index in range(len(parameters)):
            kernels[index](
                parameters[index], gradients[index], learning_rate, buffers[index], coefficient, zeros[index]
            )

    return Optimizer(buffers, update)
