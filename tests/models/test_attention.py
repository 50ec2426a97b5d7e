"""Squeeze-excite and gather-excite against their equations."""

import numpy as np
import pytest
from mindspore import Tensor

from resnet_fn.models import create_model
from resnet_fn.models.attention import make_gate
from resnet_fn.models.resnet import batch_norm

pytestmark = pytest.mark.usefixtures("device")


def test_gather_fits_its_own_image_size_only():
    net = create_model("genet50", num_classes=3, image_size=32)
    net.set_train(False)
    assert net(Tensor(np.zeros((1, 3, 31, 31), np.float32))).shape == (1, 3)  # also 8x8 after the stem
    with pytest.raises(ValueError, match="gather needs 8x8 features, but got 16x16; create the model with your"):
        net(Tensor(np.zeros((1, 3, 64, 64), np.float32)))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def weights(cell):
    """Each 1x1 convolution's matrix [out, in] and bias, float64."""
    matrix = cell.weight.asnumpy().astype(np.float64)
    return matrix.reshape(matrix.shape[:2]), cell.bias.asnumpy().astype(np.float64)


IMAGES = np.random.default_rng(0).normal(size=(2, 32, 6, 6)).astype(np.float32)


def test_squeeze_excite_is_the_papers_equations():
    gate = make_gate("se", 32, 6, batch_norm)
    (w1, b1), (w2, b2) = weights(gate.fc1), weights(gate.fc2)
    assert w1.shape == (2, 32)  # r = 16
    squeezed = IMAGES.astype(np.float64).mean((2, 3))
    scale = sigmoid(np.maximum(squeezed @ w1.T + b1, 0) @ w2.T + b2)
    np.testing.assert_allclose(gate(Tensor(IMAGES)).asnumpy(), IMAGES * scale[:, :, None, None], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["ge-minus", "ge", "ge-plus"])
def test_gather_excite_is_its_variants_equation(kind):
    gate = make_gate(kind, 32, 6, batch_norm).set_train(False)
    context = IMAGES.astype(np.float64).mean((2, 3))
    if kind != "ge-minus":  # a depthwise kernel as large as the map, and BatchNorm, whose statistics are 0 and 1
        kernel = gate.gather.conv1.weight.asnumpy().astype(np.float64)
        context = (IMAGES * kernel.reshape(1, 32, 6, 6)).sum((2, 3)) / np.sqrt(1 + 1e-5)
    if kind == "ge-plus":
        (w1, b1), (w2, b2) = weights(gate.mlp.fc1), weights(gate.mlp.fc2)
        context = np.maximum(np.maximum(context, 0) @ w1.T + b1, 0) @ w2.T + b2
    expected = IMAGES * sigmoid(context)[:, :, None, None]
    np.testing.assert_allclose(gate(Tensor(IMAGES)).asnumpy(), expected, rtol=1e-5, atol=1e-6)
