"""How a torch module pads is what its kernel does."""

import pytest

from resnet_fn.parity.torch_side.settings import torch_pads

# height and width, kernel, stride, dilation
SIZES = [((7, 8), 3, 2, 1), ((6, 9), 3, 1, 1), ((8, 8), 1, 2, 1), ((9, 12), (5, 3), (2, 3), 1), ((9, 8), 3, 1, 2)]


@pytest.mark.parametrize(("size", "kernel", "stride", "dilation"), SIZES)
def test_torch_padding_is_that_many_zeros(torch, size, kernel, stride, dilation):
    images = torch.randn(2, 3, *size)
    for padding in [(1, 2), 0, "valid", *(["same"] if stride == 1 else [])]:
        conv = torch.nn.Conv2d(3, 4, kernel, stride, padding, dilation)
        top, bottom, left, right = torch_pads(conv)
        padded = torch.nn.functional.pad(images, (left, right, top, bottom))
        expected = torch.nn.functional.conv2d(padded, conv.weight, conv.bias, stride, 0, dilation)
        assert torch.allclose(conv(images), expected, atol=1e-5)
