"""How a layer of either framework is set is said in the same words, and how it pads is what its
kernel does.
"""

import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from resnet_fn.parity.record.layer_settings import pads_of

pytestmark = pytest.mark.usefixtures("device")

# height and width, kernel, stride, dilation
SIZES = [
    ((7, 8), 3, 2, 1),
    ((6, 9), 3, 1, 1),
    ((8, 8), 1, 2, 1),
    ((9, 12), (5, 3), (2, 3), 1),
    ((9, 8), 3, 1, 2),
]


@pytest.mark.parametrize(("size", "kernel", "stride", "dilation"), SIZES)
def test_same_padding_is_that_many_zeros(size, kernel, stride, dilation):
    images = np.random.default_rng(1).normal(size=(2, 3, *size)).astype(np.float32)
    same = nn.Conv2d(3, 4, kernel, stride, pad_mode="same", dilation=dilation)
    valid = nn.Conv2d(3, 4, kernel, stride, pad_mode="valid", dilation=dilation)
    ops.assign(valid.weight, same.weight)
    top, bottom, left, right = pads_of(same, size)
    padded = np.pad(images, ((0, 0), (0, 0), (top, bottom), (left, right)))
    np.testing.assert_allclose(
        same(Tensor(images)).asnumpy(), valid(Tensor(padded)).asnumpy(), atol=1e-5
    )
    assert pads_of(valid, size) == (0, 0, 0, 0)


def test_given_padding_is_read_for_each_side():
    assert pads_of(nn.Conv2d(3, 4, 3, pad_mode="pad", padding=(1, 2, 3, 4)), (8, 8)) == (1, 2, 3, 4)
    assert pads_of(nn.Conv2d(3, 4, 3, pad_mode="pad", padding=1), (8, 8)) == (1, 1, 1, 1)
    assert pads_of(nn.MaxPool2d(3, 2, pad_mode="pad", padding=1), (8, 8)) == (1, 1, 1, 1)


@pytest.mark.parametrize(("size", "kernel", "stride", "dilation"), SIZES)
def test_torch_padding_is_that_many_zeros(torch, size, kernel, stride, dilation):
    images = torch.randn(2, 3, *size)
    for padding in [(1, 2), 0, "valid", *(["same"] if stride == 1 else [])]:
        conv = torch.nn.Conv2d(3, 4, kernel, stride, padding, dilation)
        top, bottom, left, right = pads_of(conv, size)
        padded = torch.nn.functional.pad(images, (left, right, top, bottom))
        expected = torch.nn.functional.conv2d(padded, conv.weight, conv.bias, stride, 0, dilation)
        assert torch.allclose(conv(images), expected, atol=1e-5)
