"""This module scales the channels of a residual branch by squeeze-excite or gather-excite."""

from collections import OrderedDict
from collections.abc import Callable

from mindspore import Tensor, nn, ops

from resnet_fn.models.layers import conv_arguments
from resnet_fn.models.positions import broadcast_hw, mean, total

Norm = Callable[[int], nn.Cell]  # maps a number of channels to the layer after a convolution
REDUCTION = 16  # r in both papers


class Excite(nn.Cell):
    """Applies ReLU, a 1x1 convolution to C/16 channels, ReLU, and a 1x1 convolution back to C
    channels.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(channels, channels // REDUCTION, 1, 1, **conv_arguments(bias=True))
        self.fc2 = nn.Conv2d(channels // REDUCTION, channels, 1, 1, **conv_arguments(bias=True))
        self.relu = nn.ReLU()

    def construct(self, context: Tensor) -> Tensor:
        """Map [N, C, 1, 1] to [N, C, 1, 1]."""
        return self.fc2(self.relu(self.fc1(self.relu(context))))


class SqueezeExcite(Excite):
    """Computes x · σ(W₂ relu(W₁ mean(x))) for feature maps x of shape [N, C, H, W].

    The formula joins equations 2 to 4 of Hu et al., arXiv 1709.01507. As in Hu et al., W₁ maps C
    channels to C/16. For C = 64, W₁ has 4 outputs here, but 8 outputs in timm's `seresnet18` and
    `seresnet34`.
    """

    standard = False  # see `positions`; also in `GlobalDepthwise` and `GatherExcite`

    def construct(self, x: Tensor) -> Tensor:
        """Map [N, C, H, W] to [N, C, H, W]."""
        context = mean(x, self.standard)
        return x * broadcast_hw(
            ops.sigmoid(self.fc2(self.relu(self.fc1(context)))), x, self.standard
        )


class GlobalDepthwise(nn.Conv2d):
    """Convolves each channel with a kernel that is as large as the feature map."""

    standard = False

    def __init__(self, channels: int, size: int) -> None:
        super().__init__(channels, channels, size, 1, **conv_arguments(groups=channels))

    def construct(self, x: Tensor) -> Tensor:
        """Map [N, C, S, S] to [N, C, 1, 1]."""
        channels, _, height, width = self.weight.shape
        if x.shape[2] != height or x.shape[3] != width:
            raise ValueError(
                f"image_size: the net needs feature maps of {height}x{width}, but got "
                f"{x.shape[2]}x{x.shape[3]}; "
                "create the model with your images' image_size"
            )
        # A sum of products is faster than a convolution on a CPU, and works with large kernels on a
        # card.
        weight = self.weight.reshape((1, channels, height, width))
        return total(x * broadcast_hw(weight, x, self.standard), self.standard)


class GatherExcite(nn.Cell):
    """Computes x · σ(excite(gather(x))). gather reduces each feature map to one value (Hu et al.,
    arXiv 1810.12348).

    The variant "minus" (θ⁻) gathers by the mean, on maps of any size. The variant "" (θ) gathers by
    a depthwise convolution as large as the map (`size` x `size`) and BatchNorm. The variant "plus"
    (θ⁺) adds `Excite`, which begins with a ReLU as in the authors' Caffe models, but not in timm.
    MindSpore's GENet adds a 3x3 convolution in stage 1.
    """

    standard = False

    def __init__(self, channels: int, variant: str, size: int, norm: Norm) -> None:
        super().__init__()
        self.gather = (
            nn.SequentialCell(
                OrderedDict(conv1=GlobalDepthwise(channels, size), norm1=norm(channels))
            )
            if variant != "minus"
            else None
        )
        self.mlp = Excite(channels) if variant == "plus" else None

    def construct(self, x: Tensor) -> Tensor:
        """Map [N, C, H, W] to [N, C, H, W]."""
        context = mean(x, self.standard) if self.gather is None else self.gather(x)
        if self.mlp is not None:
            context = self.mlp(context)
        return x * broadcast_hw(ops.sigmoid(context), x, self.standard)


def make_gate(attention: str, channels: int, size: int, norm: Norm) -> nn.Cell | None:
    """Create a block's attention layer: "se", "ge-minus" (θ⁻), "ge" (θ), "ge-plus" (θ⁺), or None
    for "".
    """
    if attention == "":
        return None
    if attention == "se":
        return SqueezeExcite(channels)
    return GatherExcite(channels, attention.removeprefix("ge").removeprefix("-"), size, norm)
