"""Initial weights have the distributions of PyTorch and of the named schemes."""

import mindspore
import numpy as np
import pytest
from mindspore import Tensor, nn

from resnet_fn.models import create_model
from resnet_fn.models.init import initialise

pytestmark = pytest.mark.usefixtures("device")


def test_uniform_initialisations_keep_their_bounds():
    def weights(name):
        net = create_model("resnet18", num_classes=1000, initialisation=name)
        return net.layer3[1].conv1.weight.asnumpy(), net.fc.weight.asnumpy(), net.fc.bias.asnumpy()

    fan = 256 * 9
    conv, dense, bias = weights("he_uniform")
    assert np.abs(conv).max() == pytest.approx(np.sqrt(6 / fan), rel=0.01)
    assert np.abs(dense).max() <= 0.02 + 1e-6  # two standard deviations of 0.01
    assert not bias.any()
    conv, _, _ = weights("xavier_uniform")
    assert np.abs(conv).max() == pytest.approx(np.sqrt(6 / (2 * fan)), rel=0.01)


def test_zero_init_residual_makes_blocks_the_identity():
    net = create_model("resnet8", num_classes=3, zero_init_residual=True)
    net.set_train(True)
    x = Tensor(np.abs(np.random.default_rng(0).normal(size=(2, 16, 8, 8))).astype(np.float32))
    np.testing.assert_array_equal(net.layer1(x).asnumpy(), x.asnumpy())


@pytest.mark.parametrize("kind", ["torchvision", "torch"])
@pytest.mark.parametrize(
    ("sizes", "groups"), [((256, 512, 3), 1), ((512, 512, 3), 32), ((512, 1000), 1)]
)
def test_initialisation_has_torchs_distribution(kind, sizes, groups):
    """Mean and standard deviation within five standard errors, range alike; bias included; two
    sizes: Dense.
    """
    torch = pytest.importorskip("torch", reason="torch's own initialisation is the expectation")
    if len(sizes) == 2:
        own, other = nn.Dense(*sizes), torch.nn.Linear(*sizes)
    else:
        own = nn.Conv2d(*sizes, pad_mode="valid", group=groups, has_bias=True)
        other = torch.nn.Conv2d(*sizes, groups=groups)
    mindspore.set_seed(1)
    torch.manual_seed(1)
    initialise(nn.SequentialCell([own]), kind)
    other.reset_parameters()
    if kind == "torchvision" and isinstance(other, torch.nn.Conv2d):
        torch.nn.init.kaiming_normal_(other.weight, mode="fan_out", nonlinearity="relu")
    for ours, expected in ((own.weight, other.weight), (own.bias, other.bias)):
        a, b = np.float64(ours.asnumpy()), np.float64(expected.detach().numpy())
        error = 5 * b.std() * np.sqrt(2 / b.size)
        assert abs(a.mean() - b.mean()) < error
        assert abs(a.std() - b.std()) < error
        # Uniform ranges agree to a part of n; the extremes of normals vary by some tenths.
        normal = kind == "torchvision" and ours is own.weight and isinstance(own, nn.Conv2d)
        assert np.abs(a).max() == pytest.approx(np.abs(b).max(), rel=0.3 if normal else 0.02)
