"""This module computes a convolution of few input channels as a matrix product on a CPU."""

from typing import Any

from mindspore import Tensor, nn, ops

# MindSpore's only name of the operation that nn.Conv2d's own gradient uses
from mindspore.ops.operations._grad_ops import Conv2DBackpropFilter

# At most so many slices of the batch, because each slice makes the compiled graph larger.
_SLICES = 8


class Columns(nn.Cell):
    """Copies the pixels under the filter into columns, and multiplies them by the weight.

    The columns are neither all made at once nor kept for the backward pass: the gradient of the
    weight is MindSpore's operation, which is fast with all instructions, too. The gradient of the
    images is a slow operation; a stem does not need it.
    """

    def __init__(self, size: int, stride: int, outputs: int) -> None:
        super().__init__()
        self.stride = stride
        padding = size // 2
        self.cut = ops.Im2Col(size, stride, 1, padding)
        settings: dict[str, Any] = {
            "kernel_size": (size, size),
            "pad_mode": "pad",
            "pad": padding,
            "pad_list": (padding,) * 4,
            "stride": (stride, stride),
        }
        self.gradient_of_x = ops.Conv2DBackpropInput(outputs, **settings)
        self.gradient_of_weight = Conv2DBackpropFilter(outputs, **settings)

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
            self.gradient_of_weight(dout, x, weight.shape),
        )
