"""The nets' tree, padding, strides, statistics, stems and pooling are torchvision's."""

import mindspore
import numpy as np
import pytest
from mindspore import Tensor, ops

from resnet_fn.models import create_model
from resnet_fn.models.resnet import MaxPool2d

pytestmark = pytest.mark.usefixtures("device")


def test_names_are_torchvisions_tree():
    names = {parameter.name for parameter in create_model("resnet50").get_parameters()}
    downsample = {"layer1.0.downsample.0.weight", "layer1.0.downsample.1.moving_mean"}
    assert {"conv1.weight", "bn1.gamma", "bn1.moving_variance", *downsample, "layer4.2.bn3.beta", "fc.bias"} <= names
    # 53 convolutions, 53 BatchNorms of four, Dense weight and bias
    assert len(names) == 53 + 4 * 53 + 2


@pytest.mark.parametrize(("stem", "size"), [("imagenet", 4), ("cifar", 16)])
def test_stems(stem, size):
    net = create_model("resnet18", num_classes=7, stem=stem, in_channels=1)
    net.set_train(False)
    x = Tensor(np.zeros((1, 1, 16, 16), np.float32))
    assert net.maxpool(net.conv1(x)).shape == (1, 64, size, size)
    assert net(x).shape == (1, 7)


@pytest.mark.parametrize("size", [8, 9])
def test_a_card_pools_what_a_cpu_does(size):
    rng = np.random.default_rng(size)
    x = rng.normal(size=(2, 3, size, size)).astype(np.float32)
    x[0, 0] = -1.0  # windows where all is 0 after the ReLU: the border's zero may win, and has no gradient to lose
    out = -(-size // 2)
    weights = Tensor(rng.normal(size=(2, 3, out, out)).astype(np.float32))
    results = []
    for standard in (False, True):
        pool = MaxPool2d()
        assert not pool.standard  # on a CPU
        pool.standard = standard

        @mindspore.jit
        def forward_and_gradient(x, pool=pool):
            def weighed(x):
                pooled = pool(ops.relu(x))
                return (pooled * weights).sum(), pooled

            return mindspore.value_and_grad(weighed, 0, has_aux=True)(x)

        (_, pooled), gradient = forward_and_gradient(Tensor(x))
        results.append((pooled.asnumpy(), gradient.asnumpy()))
    (ours, our_gradient), (cards, card_gradient) = results
    assert (ours == cards).all()
    np.testing.assert_allclose(card_gradient, our_gradient, atol=1e-6)
    padded = np.pad(np.maximum(x, 0), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = [padded[:, :, i : i + 2 * out - 1 : 2, j : j + 2 * out - 1 : 2] for i in range(3) for j in range(3)]
    assert (ours == np.max(windows, axis=0)).all()
