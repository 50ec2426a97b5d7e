"""These cells compute convolutions as matrix products, for oneDNN with all instructions.

Their gradient of the weight is MindSpore's operation, which is fast with all instructions, too. So
the forward pass keeps no factors of products for the backward pass.
"""

from typing import Any

from mindspore import Tensor, nn, ops

# MindSpore's only name of the operation that the gradient of nn.Conv2d uses
from mindspore.ops.operations._grad_ops import Conv2DBackpropFilter

from resnet_fn.models.winograd import (
    convolve,
    gradient_of_input,
    gradients_of_product,
    times_filtered,
)

# At most so many slices of the batch, because each slice makes the compiled graph larger.
_SLICES = 8


class Products(nn.Cell):
    """Computes a convolution of images [N, C, H, W] and a weight [O, C, size, size]."""

    def __init__(self, size: int, stride: int, outputs: int) -> None:
        super().__init__()
        self.stride = stride
        padding = size // 2
        self.settings: dict[str, Any] = {
            "kernel_size": (size, size),
            "pad_mode": "pad",
            "pad": padding,
            "pad_list": (padding,) * 4,
            "stride": (stride, stride),
        }
        self.of_weight = Conv2DBackpropFilter(outputs, **self.settings)

    def bprop(
        self,
        x: Tensor,
        weight: Tensor,
        out: Tensor,
        dout: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the gradients of images and weight."""
        return (
            self.gradient_of_x(dout, weight, x.shape),
            self.of_weight(dout, x, weight.shape),
        )


class Winograd(Products):
    """Computes a 3x3 convolution of stride 2 by Winograd's method."""

    def construct(self, x: Tensor, weight: Tensor) -> Tensor:
        """Map [N, C, H, W] to [N, O, H', W']."""
        return convolve(x, weight, self.stride)

    def gradient_of_x(self, dout: Tensor, weight: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return the gradient of the images."""
        return gradient_of_input(dout, weight, shape, self.stride)


class TimesFiltered(nn.Cell):
    """Computes the product in `convolve` of stride 1.

    The backward pass computes the filtered weight again, with the same bits. So the forward pass
    does not keep it: with the memory of AVX-512's kernels, it would be too much.
    """

    def construct(self, v: Tensor, weight: Tensor) -> Tensor:
        """Map [products, M, C] and [O, C, 3, 3] to [products, M, O]."""
        return times_filtered(v, weight)

    def bprop(self, v: Tensor, weight: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of `v` and weight."""
        return gradients_of_product(dout, v, weight)


class Columns(Products):
    """Copies the pixels under the filter into columns, and multiplies them by the weight.

    This is for stems: the gradient of the images is a slow operation, which they do not need.
    """

    def __init__(self, size: int, stride: int, outputs: int) -> None:
        super().__init__(size, stride, outputs)
        self.cut = ops.Im2Col(size, stride, 1, size // 2)
        self.of_x = ops.Conv2DBackpropInput(outputs, **self.settings)

    def construct(self, x: Tensor, weight: Tensor) -> Tensor:
        """Map [N, C, H, W] and [O, C, size, size] to [N, O, H', W']."""
        n, _, height, width = x.shape
        outputs = weight.shape[0]
        matrix = weight.reshape(outputs, -1)
        new_height = -(-height // self.stride)
        new_width = -(-width // self.stride)
        step = n
        if matrix.shape[1] > outputs:  # the columns are larger than the outputs
            step = -(-n // _SLICES)
        slices = []
        for start in range(0, n, step):
            columns = self.cut(x[start : start + step])
            columns = columns.reshape(
                -1,
                matrix.shape[1],
                new_height * new_width,
            )
            y = ops.matmul(matrix, columns)
            slices.append(y)
        y = slices[0]
        if len(slices) > 1:
            y = ops.concat(slices)
        return y.reshape(
            n,
            outputs,
            new_height,
            new_width,
        )

    def gradient_of_x(self, dout: Tensor, weight: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return the gradient of the images."""
        return self.of_x(dout, weight, shape)
