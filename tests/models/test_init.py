"""Initial weights have the distributions of PyTorch and of the named schemes."""

import mindspore
import numpy as np
import pytest
from mindspore import Tensor, nn

from resnet_fn.models import create_model
from resnet_fn.models.init import initialise

pytestmark = pytest.mark.usefixtures("device")


@pytest.mark.parametrize(("kind", "fan"), [("he_uniform", 64 * 9), ("xavier_uniform", 2 * 64 * 9)])
def test_uniform_initialisations_keep_their_bounds(kind, fan):
    net = create_model("resnet8", initialisation=kind)
    conv, dense, bias = (
        np.abs(p.asnumpy()).max() for p in (net.layer3[0].conv2.weight, net.fc.weight, net.fc.bias)
    )
    assert conv == pytest.approx(np.sqrt(6 / fan), rel=0.01)
    assert 0.015 < dense <= 0.02 + 1e-6  # two standard deviations of 0.01
    assert bias == 0


def test_zero_init_residual_makes_blocks_the_identity():
    net = create_model("resnet8", num_classes=3, zero_init_residual=True)
    net.set_train(True)
    x = Tensor(np.abs(np.random.default_rng(0).normal(size=(2, 16, 8, 8))).astype(np.float32))
    np.testing.assert_array_equal(net.layer1(x).asnumpy(), x.asnumpy())


@pytest.mark.parametrize("kind", ["torchvision", "torch"])
@pytest.mark.parametrize(
    ("layer", "fan_in"),
    [
        (lambda: nn.Conv2d(256, 512, 3, pad_mode="valid", has_bias=True), 256 * 9),
        (lambda: nn.Conv2d(512, 512, 3, pad_mode="valid", has_bias=True, group=32), 16 * 9),
        (lambda: nn.Dense(512, 1000), 512),
    ],
)
def test_initialisation_has_torchs_distribution(kind, layer, fan_in):
    """U(−1/√fan_in, 1/√fan_in), as `reset_parameters` of Conv2d and Linear draws; of torchvision's
    convolutions N(0, 2/fan_out). Mean and standard deviation within five standard errors.
    """
    cell = layer()
    mindspore.set_seed(1)
    initialise(nn.SequentialCell([cell]), kind)
    for parameter in (cell.weight, cell.bias):
        values = np.float64(parameter.asnumpy())
        bound = fan_in**-0.5
        deviation = bound / 3**0.5
        if kind == "torchvision" and values.ndim == 4:
            deviation = (2 / (512 * 9)) ** 0.5
        else:
            assert np.abs(values).max() == pytest.approx(bound, rel=0.02)
        error = 5 * deviation / values.size**0.5
        assert abs(values.mean()) < error
        assert values.std() == pytest.approx(deviation, abs=error)
