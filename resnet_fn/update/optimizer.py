"""This module makes the recipe's optimizer, and momentum SGD; optimizers update weights and their state in place."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import mindspore
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.config.recipe import Recipe
from resnet_fn.update.adaptive import adam, adamw, lamb, lars
from resnet_fn.update.groups import Groups, parameter_groups, scaled, unzip_groups
from resnet_fn.update.state import Optimizer, make_buffers, zeros_like
from resnet_fn.update.vectors import over_vectors

_MOST = 2**20  # most elements of a net that uses vectors; in larger nets joining the gradients costs what it saves


def make_optimizer(recipe: Recipe, net: nn.Cell, groups: Groups | None = None) -> Optimizer:
    """Make the recipe's optimizer for a net; `groups` replace the recipe's parameter groups."""
    groups = groups or parameter_groups(recipe, net)
    moments: dict[str, Any] = {"beta1": recipe.momentum, "beta2": recipe.beta2}
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


def make_fast_optimizer(recipe: Recipe, net: nn.Cell) -> Optimizer:
    """Make the recipe's optimizer for `make_train_step`; for a small net on a CPU, over vectors (`vectors.py`)."""
    parameters = net.trainable_params()
    small = sum(math.prod(parameter.shape) for parameter in parameters) <= _MOST
    # LARS and LAMB need each parameter's norm. A moving average reads the weights after their update, but a compiled
    # function may reorder the two, because it treats a vector and its views as different memory.
    elementwise = recipe.optimizer in ("sgd", "adam", "adamw") and not recipe.ema
    plain = all(parameter.dtype == mindspore.float32 for parameter in parameters)
    if small and elementwise and plain and mindspore.get_current_device().device_target == "CPU":
        return over_vectors(functools.partial(make_optimizer, recipe, net), parameter_groups(recipe, net))
    return make_optimizer(recipe, net)


def momentum_sgd(groups: Groups, momentum: float = 0.9, nesterov: bool = False) -> Optimizer:
    """Make SGD with momentum, as `torch.optim.SGD` computes it (dampening 0, coupled weight decay).

    g ← g + decay · p;  v ← momentum · v + g;  p ← p − lr · (g + momentum · v)  with Nesterov, else  p ← p − lr · v.

    `groups`: see `parameter_groups`; 0 <= momentum < 1; `nesterov`: Nesterov's form (Sutskever et al., 2013).

    Returns:
        `state`: one buffer `momentum.<parameter>` for each parameter, float32, zeros at first.
        `update(gradients, learning_rate)`: learning_rate is a float32 scalar tensor.
    """
    if nesterov and momentum == 0:
        raise ValueError("nesterov: needs momentum above 0; give --momentum 0.9 or --no-nesterov")
    parameters, decays, factors = unzip_groups(groups)
    buffers = make_buffers(parameters, "momentum")
    # ops.SGD is one kernel per parameter, and correct on a CPU, where ops.ApplyMomentum silently ignores Nesterov and
    # mint.optim.SGD updates nothing. A `stat` of zeros turns off the special first step of ops.SGD; the CPU kernel
    # needs it in the parameter's shape but does not write it, so that parameters of one shape share one `stat`.
    stats: dict[tuple[int, ...], Parameter] = {}
    for index, parameter in enumerate(parameters):
        if parameter.shape not in stats:
            stats[parameter.shape] = zeros_like(parameter, f"sgd_stat.{index}")
    by_decay = {decay: ops.SGD(0.0, decay, nesterov) for decay in decays}
    kernels = tuple(by_decay[decay] for decay in decays)
    zeros = tuple(stats[parameter.shape] for parameter in parameters)
    coefficient = Tensor(momentum, mindspore.float32)

    def update(gradients: Sequence[Tensor], learning_rate: Tensor) -> None:
        for index in range(len(parameters)):
            rate = scaled(learning_rate, factors[index])
            kernels[index](parameters[index], gradients[index], rate, buffers[index], coefficient, zeros[index])

    return Optimizer(buffers, update)
