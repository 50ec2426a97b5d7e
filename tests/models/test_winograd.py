"""F(4x4, 3x3) computes the 3x3 convolution: its float32 within a few times a direct one's."""

import mindspore
import numpy as np
import pytest
from mindspore import Tensor, ops

from resnet_fn.models.winograd import convolve

pytestmark = pytest.mark.usefixtures("device")


def direct(x, weight, given):
    """The convolution and its gradients in float64: outputs [N, O, H, W], gradient of x, gradient
    of the weight.
    """
    n, _, height, width = x.shape
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    weight, given = weight.astype(np.float64), given.astype(np.float64)
    out = np.zeros((n, weight.shape[0], height, width))
    of_x, of_weight = np.zeros_like(padded), np.zeros_like(weight)
    for i in range(3):
        for j in range(3):
            part = padded[:, :, i : i + height, j : j + width]
            out += np.einsum("nchw,oc->nohw", part, weight[:, :, i, j])
            of_x[:, :, i : i + height, j : j + width] += np.einsum(
                "nohw,oc->nchw", given, weight[:, :, i, j]
            )
            of_weight[:, :, i, j] = np.einsum("nohw,nchw->oc", given, part)
    return out, of_x[:, :, 1:-1, 1:-1], of_weight


def relative(actual, expected):
    return np.sqrt(((actual.asnumpy() - expected) ** 2).mean() / (expected**2).mean())


@pytest.mark.parametrize(
    "shape", [(4, 16, 24, 16, 16), (3, 64, 32, 9, 14), (2, 128, 64, 7, 7), (5, 32, 32, 2, 1)]
)
def test_outputs_and_gradients_are_those_of_the_convolution(shape):
    n, c, o, height, width = shape
    rng = np.random.default_rng(0)
    x, given = (rng.normal(size=(n, k, height, width)).astype(np.float32) for k in (c, o))
    weight = (rng.normal(size=(o, c, 3, 3)) / np.sqrt(9 * c)).astype(np.float32)
    standard = ops.Conv2D(o, 3, pad_mode="pad", pad=1)

    def weighted(function):
        def total(x, weight):
            y = function(x, weight)
            return (y * Tensor(given)).sum(), y

        return mindspore.jit(mindspore.value_and_grad(total, (0, 1), None, has_aux=True))

    expected = direct(x, weight, given)
    # measured: 0.6e-6 to 1.6e-6, 0.1e-6 to 0.4e-6
    for function, limit in ((convolve, 2.5e-6), (standard, 1e-6)):
        (_, y), (of_x, of_weight) = weighted(function)(Tensor(x), Tensor(weight))
        for actual, wanted in zip((y, of_x, of_weight), expected, strict=True):
            assert relative(actual, wanted) < limit, function
    assert relative(convolve(Tensor(x), Tensor(weight)), expected[0]) < 2.5e-6  # not compiled
