"""The nets' tree, padding, strides, statistics, stems and pooling are torchvision's."""

import numpy as np
import pytest
from mindspore import Tensor, nn

from resnet_fn.models import create_model

pytestmark = pytest.mark.usefixtures("device")


def test_names_are_torchvisions_tree():
    names = {parameter.name for parameter in create_model("resnet50").get_parameters()}
    assert {
        "conv1.weight",
        "bn1.gamma",
        "bn1.moving_variance",
        "layer1.0.downsample.0.weight",
        "layer1.0.downsample.1.moving_mean",
        "layer4.2.bn3.beta",
        "fc.bias",
    } <= names
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


def test_max_pool_pads_both_sides_with_minus_infinity():
    net = create_model("resnet18")
    x = -1.0 - np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    # windows start at −1 and 1; padding with 0 would win over these negative values
    assert net.maxpool(Tensor(x)).asnumpy().tolist() == [[[[-1.0, -2.0], [-5.0, -6.0]]]]
