"""The nets' tree, padding, strides, statistics, stems and pooling are torchvision's."""

import mindspore
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from resnet_fn.models import create_model
from resnet_fn.models.resnet import MaxPool2d

pytestmark = pytest.mark.usefixtures("device")


def test_names_are_torchvisions_tree():
    names = {parameter.name for parameter in create_model("resnet50").get_parameters()}
    downsample = {"layer1.0.downsample.0.weight", "layer1.0.downsample.1.moving_mean"}
    assert {"conv1.weight", "bn1.gamma", "bn1.moving_variance", *downsample, "layer4.2.bn3.beta", "fc.bias"} <= names
    # 53 convolutions, 53 BatchNorms of four, Dense weight and bias
    assert len(names) == 53 + 4 * 53 + 2


def test_padding_stride_and_batch_norm_constants():
    net = create_model("resnet50")
    cells = dict(net.cells_and_names())
    for cell in cells.values():
        if isinstance(cell, nn.Conv2d):
            assert cell.pad_mode == "pad"
            assert np.unique(cell.padding).tolist() == [(cell.kernel_size[0] - 1) // 2]
        if isinstance(cell, nn.BatchNorm2d):
            # The cell keeps the batch's share, as PyTorch's momentum means it; its argument was 1 - 0.1.
            assert (cell.eps, round(cell.momentum, 9)) == (1e-5, 0.1)
    block = cells["layer2.0"]
    assert (block.conv1.stride, block.conv2.stride) == ((1, 1), (2, 2))
    assert (net.maxpool.kernel_size, net.maxpool.stride) in ((3, 2), ((3, 3), (2, 2)))


def test_moving_statistics_take_a_tenth_of_the_batch():
    net = create_model("resnet8", num_classes=2)
    net.set_train(True)
    x = np.random.default_rng(0).normal(size=(4, 3, 8, 8)).astype(np.float32)
    mean = net.conv1(Tensor(x)).asnumpy().mean((0, 2, 3))
    net(Tensor(x))
    np.testing.assert_allclose(net.bn1.moving_mean.asnumpy(), 0.1 * mean, rtol=1e-4, atol=1e-7)


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
