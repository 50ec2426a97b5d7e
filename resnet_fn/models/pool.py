"""The stem's max-pool."""

import mindspore
from mindspore import Tensor, nn, ops


class MaxPool2d(nn.MaxPool2d):
    """3x3 maxima at stride 2, padded by 1 on every side as in PyTorch: `same` would shift them by a pixel.

    `nn.MaxPool2d(pad_mode="pad")` is `ops.MaxPool3DWithArgmax` (mindspore/nn/layer/pooling.py), which together with its
    gradient is registered for an Ascend card's scalar cores (mindspore/ops/_op_impl/aicpu/max_pool3d_with_argmax.py).
    There it pads with zeros first and pools `valid`, two operations of the vector cores (mindspore/ops/_op_impl/tbe),
    as MindSpore's own ResNet does (mindspore-ai/models, official/cv/ResNet, `res_base`). What a ReLU gives is never
    negative: a border of zeros is as good as none. On a CPU this takes 530 ms instead of 194 (8 x 64 x 112 x 112 with
    gradient, 2 cores).

    Attributes:
        pads_first: whether it computes so.
    """

    def __init__(self) -> None:
        super().__init__(3, 2, pad_mode="pad", padding=1)
        self.pads_first = mindspore.get_context("device_target") == "Ascend"
        self.border = ops.Pad(((0, 0), (0, 0), (1, 1), (1, 1)))
        self.maxima = ops.MaxPool(3, 2, "valid")

    def construct(self, x: Tensor) -> Tensor:
        """[N, C, H, W], a ReLU's output, to [N, C, ceil(H / 2), ceil(W / 2)]."""
        return self.maxima(self.border(x)) if self.pads_first else super().construct(x)
