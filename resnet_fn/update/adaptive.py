"""This module makes the optimizers except SGD, each by the function with its name."""

from collections.abc import Callable, Sequence

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, ops

from resnet_fn.update.gradients import map_tensors
from resnet_fn.update.groups import Groups, scaled, unzip_groups
from resnet_fn.update.state import Optimizer, check_decays, make_buffers

_adam_kernel = ops.Adam()
_assign = ops.Assign()


def one_minus_powers(betas: Sequence[float]) -> Callable[[Tensor], Tensor]:
    """Return a function from an update count t (float32 scalar) to Adam's bias corrections 1 − β^t,
    float32 [betas].
    """
    logarithms = Tensor(np.log(np.maximum(betas, 1e-30)), mindspore.float32)

    def corrections(count: Tensor) -> Tensor:
        # In float32, 1 − 0.999 is wrong in the fifth digit. So is MindSpore's expm1 on a CPU,
        # because its exponential has an error of 2e-6. With h = tanh(−x / 2), 1 − e^x is 2h / (1 +
        # h), which is exact to float32 for x > −4.
        x = count * logarithms
        half = ops.tanh(-0.5 * x)
        return ops.where(x > -4.0, 2.0 * half / (1.0 + half), 1.0 - ops.exp(x))

    return corrections


def adam(
    groups: Groups,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    decoupled: bool = False,
) -> Optimizer:
    """Make Adam with coupled weight decay, as `torch.optim.Adam` (Kingma and Ba, arXiv 1412.6980,
    algorithm 1).

    g ← g + decay · p;  m ← β1 m + (1 − β1) g;  v ← β2 v + (1 − β2) g²;
    p ← p − lr · m / (1 − β1^t) / (√(v / (1 − β2^t)) + ε).

    Args:
        groups: the parameters, for example from `weight_decay_groups` or `parameter_groups`.
        beta1, beta2, epsilon: β1, β2 and ε in the equations.
        decoupled: if True, weight decay is decoupled, as in `adamw`.

    Returns:
        An `Optimizer` with the float32 state `momentum.<parameter>` (m), `variance.<parameter>` (v)
        and `adam_updates` (t). MindSpore rounds β to float32, so the stored m and v have small
        relative errors, for example −1.3e-5 for v with β2 = 0.999. The update of p corrects the
        errors of m and v.
    """
    check_decays(beta1=beta1, beta2=beta2)
    parameters, decays, factors = unzip_groups(groups)
    momenta = make_buffers(parameters, "momentum")
    variances = make_buffers(parameters, "variance")
    count = Parameter(Tensor(np.float32(0)), name="adam_updates", requires_grad=False)
    corrections = one_minus_powers((beta1, beta2))
    beta1_tensor = Tensor(beta1, mindspore.float32)
    beta2_tensor = Tensor(beta2, mindspore.float32)
    # The kernel computes 1 − float32(β), so m and v are stored times these ratios of 1 − float32(β)
    # to 1 − β.
    exact = np.array([beta1, beta2])
    ratios = Tensor(
        (1.0 - exact.astype(np.float32).astype(np.float64)) / (1.0 - exact), mindspore.float32
    )
    # The kernel's own bias correction is inexact, and a β^t of 0 turns it off. `update` corrects lr
    # and ε instead.
    no_power = Tensor(0.0, mindspore.float32)

    def update_one(
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
        numbers = (scaled(corrected_rate, factor), beta1_tensor, beta2_tensor, corrected_epsilon)
        return _adam_kernel(parameter, *moments, *numbers, gradient)[0]

    def update(gradients: Sequence[Tensor], learning_rate: Tensor) -> None:
        now = count + 1.0
        _assign(count, now)
        corrected = ratios * corrections(now)
        root = ops.sqrt(corrected[1])
        update_parameter = ops.partial(
            update_one, learning_rate * root / corrected[0], epsilon * root, learning_rate
        )
        map_tensors(update_parameter, decays, factors, parameters, momenta, variances, gradients)

    return Optimizer((*momenta, *variances, count), update)


def adamw(
    groups: Groups, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8
) -> Optimizer:
    """Make Adam with decoupled weight decay, as `torch.optim.AdamW` (Loshchilov and Hutter, arXiv
    1711.05101).

    An update computes p ← p · (1 − lr · decay), and then applies the equations of `adam` without
    decay. The arguments and the result are as in `adam`.
    """
    return adam(groups, beta1, beta2, epsilon, decoupled=True)


def trust_ratio(
    parameter: Parameter, direction: Tensor, coefficient: float = 1.0, decay: float = 0.0
) -> Tensor:
    """Compute coefficient · |parameter| / (|direction| + decay · |parameter|), or 1 if one of the
    norms is 0.
    """
    size = _norm(parameter)
    length = _norm(direction)
    usable = ops.logical_and(size > 0, length > 0)
    ones = ops.ones_like(size)
    return ops.where(
        usable, coefficient * size / ops.where(usable, length + decay * size, ones), ones
    )


def _norm(tensor: Tensor) -> Tensor:
    return ops.sqrt(ops.square(tensor).sum())


def lars(groups: Groups, momentum: float = 0.9, trust_coefficient: float = 0.001) -> Optimizer:
    """Make LARS, layer-wise adaptive rate scaling (You et al., arXiv 1708.03888, algorithm 1).

    λ = trust · |p| / (|g| + decay · |p|);  v ← momentum · v + lr · λ · (g + decay · p);  p ← p − v.

    λ is 1 for a parameter without weight decay. λ is also 1 if all weights or all gradients of the
    parameter are 0.

    Args:
        groups: the parameters, for example from `weight_decay_groups` or `parameter_groups`.
        momentum, trust_coefficient: momentum and trust in the equations.

    Returns:
        An `Optimizer` with the float32 state `momentum.<parameter>` (v).
    """
    check_decays(momentum=momentum)
    parameters, decays, factors = unzip_groups(groups)
    buffers = make_buffers(parameters, "momentum")

    def update(gradients: Sequence[Tensor], learning_rate: Tensor) -> None:
        for index in range(len(parameters)):
            parameter = parameters[index]
            gradient = gradients[index]
            decay = decays[index]
            rate = scaled(learning_rate, factors[index])
            if decay > 0:
                rate = rate * trust_ratio(parameter, gradient, trust_coefficient, decay)
                gradient = gradient + decay * parameter
            step = momentum * buffers[index] + rate * gradient
            _assign(buffers[index], step)
            _assign(parameter, parameter - step)

    return Optimizer(buffers, update)


def lamb(
    groups: Groups, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-6
) -> Optimizer:
    """Make LAMB, a layer-wise Adam for large batches (You et al., arXiv 1904.00962, algorithm 2).

    m ← β1 m + (1 − β1) g;  v ← β2 v + (1 − β2) g²;
    u = m / (1 − β1^t) / (√(v / (1 − β2^t)) + ε) + decay · p;
    p ← p − lr · |p| / |u| · u.

    If |p|, |u| or the weight decay is 0, the step is lr · u, as in timm's Lamb. The A1–A3 recipes
    (arXiv 2110.00476) were trained with timm's Lamb. The arguments are as in `adam`.

    Returns:
        An `Optimizer` with float32 state `momentum.<parameter>` (m), `variance.<parameter>` (v) and
        `lamb_updates` (t).
    """
    check_decays(beta1=beta1, beta2=beta2)
    parameters, decays, factors = unzip_groups(groups)
    momenta = make_buffers(parameters, "momentum")
    variances = make_buffers(parameters, "variance")
    count = Parameter(Tensor(np.float32(0)), name="lamb_updates", requires_grad=False)
    corrections = one_minus_powers((beta1, beta2))
    # not in float32, where 1 − 0.999 is wrong in the fifth digit
    rest1 = 1.0 - beta1
    rest2 = 1.0 - beta2

    def update(gradients: Sequence[Tensor], learning_rate: Tensor) -> None:
        now = count + 1.0
        _assign(count, now)
        corrected = corrections(now)
        root = ops.sqrt(corrected[1])
        for index in range(len(parameters)):
            parameter = parameters[index]
            gradient = gradients[index]
            decay = decays[index]
            mean = beta1 * momenta[index] + rest1 * gradient
            variance = beta2 * variances[index] + rest2 * ops.square(gradient)
            _assign(momenta[index], mean)
            _assign(variances[index], variance)
            step = mean / corrected[0] / (ops.sqrt(variance) / root + epsilon)
            if decay > 0:
                step = step + decay * parameter
                step = step * trust_ratio(parameter, step)
            _assign(parameter, parameter - scaled(learning_rate, factors[index]) * step)

    return Optimizer((*momenta, *variances, count), update)


def lion(groups: Groups, beta1: float = 0.9, beta2: float = 0.99) -> Optimizer:
    """Make Lion, which moves by a sign (Chen et al., arXiv 2302.06675, algorithm 2).

    p ← p − lr · (sign(β1 m + (1 − β1) g) + decay · p);  m ← β2 m + (1 − β2) g.

    The arguments are as in `adam`.

    Returns:
        An `Optimizer` with the float32 state `momentum.<parameter>` (m).
    """
    check_decays(beta1=beta1, beta2=beta2)
    parameters, decays, factors = unzip_groups(groups)
    momenta = make_buffers(parameters, "momentum")
    rest1 = 1.0 - beta1
    rest2 = 1.0 - beta2

    def update(gradients: Sequence[Tensor], learning_rate: Tensor) -> None:
        for index in range(len(parameters)):
            parameter = parameters[index]
            gradient = gradients[index]
            mean = momenta[index]
            decay = decays[index]
            ahead = beta1 * mean
            step = ops.sign(ahead + rest1 * gradient)
            if decay > 0:
                step = step + decay * parameter
            rate = scaled(learning_rate, factors[index])
            kept = beta2 * mean
            _assign(mean, kept + rest2 * gradient)
            _assign(parameter, parameter - rate * step)

    return Optimizer(momenta, update)
