"""The gradients of one batch, for looking at: a pass of its own, compiled when it is first asked for.

The step hands out no gradients: it would have to keep all of them in every update, for the sake of a few.
"""

from collections.abc import Callable

import mindspore
import numpy as np
from mindspore import Tensor, nn, ops

from resnet_fn.update.loss import Loss
from resnet_fn.update.loss_scale import DynamicLossScaler

GradientPass = Callable[[np.ndarray, np.ndarray], dict[str, np.ndarray]]


def make_gradient_pass(net: nn.Cell, loss: Loss, scaler: DynamicLossScaler, accumulate: int = 1) -> GradientPass:
    """Return a function that differentiates as the step does and changes nothing; until its first call it is free.

    Args:
        net, loss, scaler, accumulate: the step's, see `make_train_step`.

    Returns:
        gradients(images, labels): one worker's share of an update as the step takes it, to each trained parameter's
        gradient by name, float32: the mean over the micro-batches, unscaled, of this worker alone, before clipping.
    """
    weights = tuple(net.trainable_params())
    statistics = [parameter for parameter in net.get_parameters() if not parameter.requires_grad]

    def scaled_loss(images: Tensor, labels: Tensor, scale: Tensor) -> Tensor:
        return loss(net(images), labels) * scale

    differentiate = mindspore.value_and_grad(scaled_loss, None, weights)

    @mindspore.jit
    def micro_batch(images: Tensor, labels: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
        _, gradients = differentiate(images, labels, scale)
        return gradients

    def gradients(images: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
        kept = [parameter.asnumpy().copy() for parameter in statistics]
        net.set_train(True)
        size = len(images) // accumulate
        scale = float(scaler.scale.asnumpy())
        sums = [np.zeros(parameter.shape, np.float32) for parameter in weights]
        for start in range(0, accumulate * size, size):
            part = slice(start, start + size)
            found = micro_batch(Tensor(images[part]), Tensor(labels[part]), Tensor(scale, mindspore.float32))
            for total, gradient in zip(sums, found, strict=True):
                total += gradient.asnumpy().astype(np.float32)
        for parameter, value in zip(statistics, kept, strict=True):
            ops.assign(parameter, Tensor(value))
        factor = np.float32(1 / (scale * accumulate))
        return {parameter.name: total * factor for parameter, total in zip(weights, sums, strict=True)}

    return gradients
