"""Adam and AdamW, as PyTorch computes them."""

from collections.abc import Sequence

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, ops

from resnet_fn.update.gradients import each
from resnet_fn.update.optimizer import Groups, Optimizer, columns, make_buffers, one_minus_powers, scaled

_adam_kernel, _assign = ops.Adam(), ops.Assign()


def adam(groups: Groups, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8) -> Optimizer:
    """Adam (Kingma and Ba, arXiv 1412.6980, algorithm 1), as `torch.optim.Adam`: weight decay is part of the gradient.

    g ← g + decay · p;  m ← β1 m + (1 − β1) g;  v ← β2 v + (1 − β2) g²;
    p ← p − lr · m / (1 − β1^t) / (√(v / (1 − β2^t)) + ε).

    Args:
        groups: see `parameter_groups`.
        beta1, beta2, epsilon: as in the equations.

    Returns:
        State `momentum.<parameter>` and `variance.<parameter>`, m and v, float32, and `adam_updates`, t; see
        `Optimizer`. What is kept is (1 − f(β)) / (1 − β) of m and v, where f rounds to float32: 1.3e-5 less of v for
        β2 = 0.999. The update makes up for it.
    """
    return _adam(groups, beta1, beta2, epsilon, decoupled=False)


def adamw(groups: Groups, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8) -> Optimizer:
    """Adam with decoupled weight decay (Loshchilov and Hutter, arXiv 1711.05101), as `torch.optim.AdamW`.

    p ← p · (1 − lr · decay), and then Adam's update without decay. Arguments and result as `adam`.
    """
    return _adam(groups, beta1, beta2, epsilon, decoupled=True)


def _adam(groups: Groups, beta1: float, beta2: float, epsilon: float, decoupled: bool) -> Optimizer:
    parameters, decays, factors = columns(groups)
    momenta, variances = make_buffers(parameters, "momentum"), make_buffers(parameters, "variance")
    count = Parameter(Tensor(np.float32(0)), name="adam_updates", requires_grad=False)
    corrections = one_minus_powers((beta1, beta2))
    beta1_given, beta2_given = Tensor(beta1, mindspore.float32), Tensor(beta2, mindspore.float32)
    # The kernel takes float32(β) from 1: what it computes of the exact 1 − β.
    exact = np.array([beta1, beta2])
    shares = Tensor((1.0 - exact.astype(np.float32).astype(np.float64)) / (1.0 - exact), mindspore.float32)
    # The kernel's own bias correction would start from β^t in float32: it is told 0, and lr and ε hold the correction.
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
        each(one, decays, factors, parameters, momenta, variances, gradients)

    return Optimizer((*momenta, *variances, count), update)
