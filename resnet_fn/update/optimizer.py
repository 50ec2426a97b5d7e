"""This module makes SGD with momentum, and the optimizer that a recipe names."""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import mindspore
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.config.optimizers import OPTIMIZERS, settings_read_by
from resnet_fn.config.recipe import Recipe
from resnet_fn.update import adaptive
from resnet_fn.update.groups import Groups, parameter_groups, scaled, unzip_groups
from resnet_fn.update.state import Optimizer, check_decays, make_buffers, zeros_like
from resnet_fn.update.vectors import over_vectors

# most elements of a net that uses vectors; to join the gradients of larger nets takes too long
_MOST = 2**20


def make_optimizer(recipe: Recipe, net: nn.Cell, groups: Groups | None = None) -> Optimizer:
    """Make the optimizer that a recipe names. `groups` replaces `parameter_groups(recipe, net)`."""
    groups = groups or parameter_groups(recipe, net)
    return named_optimizer(recipe.optimizer, groups, recipe.momentum, vars(recipe))


def named_optimizer(
    name: str, groups: Groups, momentum: float, settings: Mapping[str, Any]
) -> Optimizer:
    """Make the optimizer with this name, by the function of adaptive.py that has its name.

    `momentum` is β1 of Adam and the like. Of `settings`, those in the optimizer's row of
    `OPTIMIZERS` are read.
    """
    make = momentum_sgd if name == "sgd" else getattr(adaptive, name)
    optimizer: Optimizer = make(groups, momentum, **settings_read_by(name, settings))
    return optimizer


def make_fast_optimizer(recipe: Recipe, net: nn.Cell) -> Optimizer:
    """Make the optimizer that a recipe names, in a form that is fast for small nets on a CPU (see
    `vectors.py`).
    """
    parameters = net.trainable_params()
    small = sum(math.prod(parameter.shape) for parameter in parameters) <= _MOST
    # LARS and LAMB need each parameter's norm. A moving average must read the weights after they
    # are updated, but a compiled function may reorder both, because it treats a vector and the
    # vector's views as different memory.
    elementwise = OPTIMIZERS[recipe.optimizer].elementwise and not recipe.ema
    plain = all(parameter.dtype == mindspore.float32 for parameter in parameters)
    if small and elementwise and plain and mindspore.get_current_device().device_target == "CPU":
        return over_vectors(
            functools.partial(make_optimizer, recipe, net), parameter_groups(recipe, net)
        )
    return make_optimizer(recipe, net)


def momentum_sgd(groups: Groups, momentum: float = 0.9, nesterov: bool = False) -> Optimizer:
    """Make SGD with momentum and coupled weight decay, as `torch.optim.SGD` with dampening 0.

    g ← g + decay · p; v ← momentum · v + g; p ← p − lr · (g + momentum · v) with Nesterov, else p ←
    p − lr · v.

    Args:
        groups: the parameters, for example from `weight_decay_groups` or `parameter_groups`.
        momentum: momentum in the equations, 0 <= momentum < 1.
        nesterov: whether to use Nesterov's form (Sutskever et al., 2013).

    Returns:
        An `Optimizer` with a float32 buffer `momentum.<parameter>` (v) for each parameter, zeros at
        first.

    Raises:
        ValueError: if `momentum` is not in [0, 1), or if `nesterov` is True and `momentum` is 0.
    """
    check_decays(momentum=momentum)
    if nesterov and momentum == 0:
        raise ValueError(
            "nesterov: momentum must be above 0, but it is 0; give --momentum 0.9 or --no-nesterov"
        )
    parameters, decays, factors = unzip_groups(groups)
    buffers = make_buffers(parameters, "momentum")
    # On a CPU, ops.SGD is correct. There ops.ApplyMomentum silently ignores Nesterov, and
    # mint.optim.SGD updates nothing. A `stat` of zeros turns off the special first step of ops.SGD.
    # The CPU kernel needs a `stat` with the parameter's shape but does not write to `stat`, so
    # parameters with the same shape share one `stat`.
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
            kernels[index](
                parameters[index], gradients[index], rate, buffers[index], coefficient, zeros[index]
            )

    return Optimizer(buffers, update)
