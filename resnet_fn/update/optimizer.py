"""Optimizers as functions of gradients, with parameter groups: momentum SGD, Adam; LARS and LAMB for large batches."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops
from mindspore.common.initializer import initializer

from resnet_fn.config.recipe import Recipe
from resnet_fn.models.parts import HEAD, group_of, layer_numbers
from resnet_fn.update.gradients import map_tensors

_adam_kernel, _assign = ops.Adam(), ops.Assign()

_NORM_LAYERS = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm, nn.LayerNorm, nn.GroupNorm),
    *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, mint.nn.LayerNorm, mint.nn.GroupNorm),
    *(mint.nn.BatchNorm1d, mint.nn.BatchNorm2d, mint.nn.BatchNorm3d, mint.nn.SyncBatchNorm),
)

# (parameter, weight decay) or (parameter, weight decay, factor of its learning rate), in the order of the gradients.
Groups = Sequence[tuple[Parameter, float] | tuple[Parameter, float, float]]


class Optimizer(NamedTuple):
    """An optimizer: its state, and the function that updates weights and state in place, inside jit."""

    state: tuple[Parameter, ...]
    update: Callable[[Sequence[Tensor], Tensor], None]


def columns(groups: Groups) -> tuple[Any, ...]:
    """Parameters, weight decays and learning rates' factors, a tuple of each; a row without a factor has 1.

    Compiled functions cannot unpack rows that mix Parameters and numbers.
    """
    return tuple(zip(*((*row, 1.0)[:3] for row in groups), strict=True)) or ((), (), ())


def scaled(learning_rate: Tensor, factor: float) -> Tensor:
    """A parameter's own learning rate, inside jit.

    The very tensor where the factor is 1: the compiled function is then the one without factors.
    """
    return learning_rate if factor == 1.0 else learning_rate * factor


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


def make_optimizer(recipe: Recipe, net: nn.Cell) -> Optimizer:
    """The recipe's optimizer for a net."""
    groups = parameter_groups(recipe, net)
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


def make_buffers(parameters: Sequence[Parameter], prefix: str) -> tuple[Parameter, ...]:
    """State of an optimizer: `<prefix>.<parameter>` for each parameter, of its shape, zeros."""
    return tuple(_zeros_like(parameter, f"{prefix}.{parameter.name}") for parameter in parameters)


def _zeros_like(parameter: Parameter, name: str) -> Parameter:
    # Not ops.zeros_like, which computes: pages that nobody has written yet are zero, and cost the start nothing.
    return Parameter(initializer("zeros", parameter.shape, parameter.dtype), name=name, requires_grad=False)


def one_minus_powers(betas: Sequence[float]) -> Callable[[Tensor], Tensor]:
    """Adam's bias corrections 1 − β^t: a function of t, float32 scalar, to float32 [betas]; for use inside jit.

    1 − 0.999 in float32 would be wrong in its fifth digit, and so is MindSpore's expm1 on a CPU, which takes 1 from
    an exponential that is 2e-6 off. With h = tanh(−x / 2), 1 − e^x is 2h / (1 + h), which loses nothing while x > −4.
    """
    logarithms = Tensor(np.log(np.maximum(betas, 1e-30)), mindspore.float32)

    def corrections(count: Tensor) -> Tensor:
        x = count * logarithms
        half = ops.tanh(-0.5 * x)
        return ops.select(x > -4.0, 2.0 * half / (1.0 + half), 1.0 - ops.exp(x))

    return corrections


def momentum_sgd(groups: Groups, momentum: float = 0.9, nesterov: bool = False) -> Optimizer:
    """SGD with momentum, as `torch.optim.SGD` computes it (dampening 0, coupled weight decay).

    g ← g + decay · p;  v ← momentum · v + g;  p ← p − lr · (g + momentum · v)  with Nesterov, else  p ← p − lr · v.

    Args:
        groups: see `parameter_groups`.
        momentum: the momentum coefficient, 0 <= momentum < 1.
        nesterov: Nesterov's form (Sutskever et al., 2013).

    Returns:
        `state`: one buffer `momentum.<parameter>` for each parameter, float32, zeros at first.
        `update(gradients, learning_rate)`: learning_rate is a float32 scalar tensor.
    """
    if nesterov and momentum == 0:
        raise ValueError("nesterov: needs momentum above 0; give --momentum 0.9 or --no-nesterov")
    parameters, decays, factors = columns(groups)
    buffers = make_buffers(parameters, "momentum")
    # ops.SGD: one kernel per parameter, and right on CPU, where ops.ApplyMomentum ignores Nesterov silently and
    # mint.optim.SGD updates nothing. Its `stat` input, when zero, turns off the first-step special case; the
    # CPU kernel wants it in the parameter's shape and never writes it then, so equal shapes share one.
    stats: dict[tuple[int, ...], Parameter] = {}
    for index, parameter in enumerate(parameters):
        if parameter.shape not in stats:
            stats[parameter.shape] = _zeros_like(parameter, f"sgd_stat.{index}")
    by_decay = {decay: ops.SGD(0.0, decay, nesterov) for decay in decays}
    kernels = tuple(by_decay[decay] for decay in decays)
    zeros = tuple(stats[parameter.shape] for parameter in parameters)
    coefficient = Tensor(momentum, mindspore.float32)

    def update(gradients: Sequence[Tensor], learning_rate: Tensor) -> None:
        for index in range(len(parameters)):
            rate = scaled(learning_rate, factors[index])
            kernels[index](parameters[index], gradients[index], rate, buffers[index], coefficient, zeros[index])

    return Optimizer(buffers, update)


def adam(
    groups: Groups, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, decoupled: bool = False
) -> Optimizer:
    """Adam (Kingma and Ba, arXiv 1412.6980, algorithm 1), as `torch.optim.Adam`: weight decay is part of the gradient.

    g ← g + decay · p;  m ← β1 m + (1 − β1) g;  v ← β2 v + (1 − β2) g²;
    p ← p − lr · m / (1 − β1^t) / (√(v / (1 − β2^t)) + ε).

    Args:
        groups: see `parameter_groups`.
        beta1, beta2, epsilon: as in the equations.
        decoupled: see `adamw`.

    Returns:
        State `momentum.<parameter>` and `variance.<parameter>`, m and v, float32, and `adam_updates`, t; see
        `Optimizer`. What is kept is (1 − f(β)) / (1 − β) of m and v, where f rounds to float32: 1.3e-5 less of v for
        β2 = 0.999. The update makes up for it.
    """
    parameters, decays, factors = columns(groups)
    momenta, variances = make_buffers(parameters, "momentum"), make_buffers(parameters, "variance")
    count = Parameter(Tensor(np.float32(0)), name="adam_updates", requires_grad=False)
    corrections = one_minus_powers((beta1, beta2))
    beta1_given, beta2_given = Tensor(beta1, mindspore.float32), Tensor(beta2, mindspore.float32)
    # The kernel takes float32(β) from 1: what it computes of the exact 1 − β.
    exact = np.array([beta1, beta2])
    shares = Tensor((1.0 - exact.astype(np.float32).astype(np.float64)) / (1.0 - exact), mindspore.float32)
    # The kernel's own bias correction would start from β^t in float32: it gets 0, and lr and ε hold the correction.
    no_power = Tensor(0.0, mindspore.float32)

    def follow(
        corrected_rate: Tensor,
        corrected_epsilon: Tensor,
        learning_rate: Tensor,
        decay: float,
        factor: float,
        parameter: Parameter,
        momentum: Parameter,
        variance: Parameter,
        gradient: Tensor,
    ) -> Tensor:
        if decay > 0 and decoupled:
            _assign(parameter, parameter * (1.0 - scaled(learning_rate, factor) * decay))
        if decay > 0 and not decoupled:
            gradient = gradient + decay * parameter
        moments = (momentum, variance, no_power, no_power)
        numbers = (scaled(corrected_rate, factor), beta1_given, beta2_given, corrected_epsilon)
        return _adam_kernel(parameter, *moments, *numbers, gradient)[0]

    def update(gradients: Sequence[Tensor], learning_rate: Tensor) -> None:
        now = count + 1.0
        ops.assign(count, now)
        corrected = shares * corrections(now)
        root = ops.sqrt(corrected[1])
        one = ops.partial(follow, learning_rate * root / corrected[0], epsilon * root, learning_rate)
        map_tensors(one, decays, factors, parameters, momenta, variances, gradients)

    return Optimizer((*momenta, *variances, count), update)


def adamw(groups: Groups, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8) -> Optimizer:
    """Adam with decoupled weight decay (Loshchilov and Hutter, arXiv 1711.05101), as `torch.optim.AdamW`.

    p ← p · (1 − lr · decay), and then Adam's update without decay. Arguments and result as `adam`.
    """
    return adam(groups, beta1, beta2, epsilon, decoupled=True)


def _norm(tensor: Tensor) -> Tensor:
    return ops.sqrt(ops.square(tensor).sum())


def lars(groups: Groups, momentum: float = 0.9, trust_coefficient: float = 0.001) -> Optimizer:
    """Layer-wise adaptive rate scaling (You et al., arXiv 1708.03888, algorithm 1).

    λ = trust · |p| / (|g| + decay · |p|);  v ← momentum · v + lr · λ · (g + decay · p);  p ← p − v.

    Parameters without weight decay (norm layers' and biases) have λ = 1, and so has one whose weights or gradients
    are zero.

    Args:
        groups: see `parameter_groups`.
        momentum: the momentum coefficient.
        trust_coefficient: the largest step, relative to the layer's weights.

    Returns:
        State `momentum.<parameter>`, float32; see `Optimizer`.
    """
    parameters, decays, factors = columns(groups)
    buffers = make_buffers(parameters, "momentum")
    one = Tensor(1.0, mindspore.float32)

    def update(gradients: Sequence[Tensor], learning_rate: Tensor) -> None:
        for index in range(len(parameters)):
            parameter, gradient, decay = parameters[index], gradients[index], decays[index]
            rate = scaled(learning_rate, factors[index])
            if decay > 0:
                size, slope = _norm(parameter), _norm(gradient)
                usable = ops.logical_and(size > 0, slope > 0)
                ratio = trust_coefficient * size / ops.select(usable, slope + decay * size, one)
                rate = rate * ops.select(usable, ratio, one)
                gradient = gradient + decay * parameter
            step = momentum * buffers[index] + rate * gradient
            ops.assign(buffers[index], step)
            ops.assign(parameter, parameter - step)

    return Optimizer(buffers, update)


def lamb(groups: Groups, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-6) -> Optimizer:
    """Layer-wise Adam for large batches (You et al., arXiv 1904.00962, algorithm 2), with bias correction.

    m ← β1 m + (1 − β1) g;  v ← β2 v + (1 − β2) g²;  u = m / (1 − β1^t) / (√(v / (1 − β2^t)) + ε) + decay · p;
    p ← p − lr · |p| / |u| · u.

    Parameters without weight decay take the plain step lr · u, and so does one whose weights or step are zero: this
    is what timm's Lamb computes, which the A1–A3 recipes (arXiv 2110.00476) were trained with.

    Args:
        groups: see `parameter_groups`.
        beta1, beta2, epsilon: as in the equations.

    Returns:
        State `momentum.<parameter>` and `variance.<parameter>`, float32, and `lamb_updates`, t; see `Optimizer`.
    """
    parameters, decays, factors = columns(groups)
    momenta, variances = make_buffers(parameters, "momentum"), make_buffers(parameters, "variance")
    count = Parameter(Tensor(np.float32(0)), name="lamb_updates", requires_grad=False)
    one = Tensor(1.0, mindspore.float32)
    corrections = one_minus_powers((beta1, beta2))
    rest1, rest2 = 1.0 - beta1, 1.0 - beta2  # here: jit would subtract in float32, which loses five digits of 1 − 0.999

    def update(gradients: Sequence[Tensor], learning_rate: Tensor) -> None:
        now = count + 1.0
        ops.assign(count, now)
        corrected = corrections(now)
        root2 = ops.sqrt(corrected[1])
        for index in range(len(parameters)):
            parameter, gradient, decay = parameters[index], gradients[index], decays[index]
            mean = beta1 * momenta[index] + rest1 * gradient
            variance = beta2 * variances[index] + rest2 * ops.square(gradient)
            ops.assign(momenta[index], mean)
            ops.assign(variances[index], variance)
            step = mean / corrected[0] / (ops.sqrt(variance) / root2 + epsilon)
            if decay > 0:
                step = step + decay * parameter
                size, length = _norm(parameter), _norm(step)
                usable = ops.logical_and(size > 0, length > 0)
                step = step * ops.select(usable, size / ops.select(usable, length, one), one)
            ops.assign(parameter, parameter - scaled(learning_rate, factors[index]) * step)

    return Optimizer((*momenta, *variances, count), update)
