"""Squeeze-excite and gather-excite multiply the channels of the residual branch before the addition.

Parameters are named as timm's: `se.fc1`, `se.fc2`; `se.gather.conv1`, `se.gather.norm1`, `se.mlp.fc1`, `se.mlp.fc2`.
"""

from collections import OrderedDict
from collections.abc import Callable

from mindspore import Tensor, nn, ops

from resnet_fn.models.layers import conv_arguments
from resnet_fn.models.positions import broadcast_hw, mean, total

Norm = Callable[[int], nn.Cell]  # makes the layer after a convolution, from the number of channels
REDUCTION = 16  # r in both papers: C → C/16 → C channels


class Excite(nn.Cell):
    """The excite of GENet's θ⁺ applies ReLU, a 1x1 convolution to C/16 channels, ReLU, and one to C."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(channels, channels // REDUCTION, 1, 1, **conv_arguments(bias=True))
        self.fc2 = nn.Conv2d(channels // REDUCTION, channels, 1, 1, **conv_arguments(bias=True))
        self.relu = nn.ReLU()

    def construct(self, context: Tensor) -> Tensor:
        """Map [N, C, 1, 1] to [N, C, 1, 1]."""
        return self.fc2(self.relu(self.fc1(self.relu(context))))


class SqueezeExcite(Excite):
    """Computes x · σ(W₂ relu(W₁ mean(x))) of x [N, C, H, W] (Hu et al., arXiv 1709.01507, equations 2–4).

    r = 16 in every block, as in the paper: 64 channels squeeze to 4, which timm's `seresnet18` and `34` round to 8.
    """

    standard = False  # see `positions.broadcast_hw`; also in `GlobalDepthwise` and `GatherExcite`

    def construct(self, x: Tensor) -> Tensor:
        """Map [N, C, H, W] to [N, C, H, W]."""
        context = mean(x, self.standard)
        return x * broadcast_hw(ops.sigmoid(self.fc2(self.relu(self.fc1(context)))), x, self.standard)


class GlobalDepthwise(nn.Conv2d):
    """This depthwise convolution has a kernel as large as the feature map: it maps [N, C, S, S] to [N, C, 1, 1].

    It is computed as a sum of products, which is faster on a CPU and has no limit of the kernel's size on a card.
    """

    standard = False

    def __init__(self, channels: int, size: int) -> None:
        super().__init__(channels, channels, size, 1, **conv_arguments(groups=channels))

    def construct(self, x: Tensor) -> Tensor:
        """Map [N, C, S, S] to [N, C, 1, 1]."""
        channels, _, height, width = self.weight.shape
        if x.shape[2] != height or x.shape[3] != width:
            raise ValueError(
                f"image_size: this net's gather needs {height}x{width} features, but got "
                f"{x.shape[2]}x{x.shape[3]}; create the model with your images' image_size"
            )
        weight = self.weight.reshape((1, channels, height, width))
        return total(x * broadcast_hw(weight, x, self.standard), self.standard)


class GatherExcite(nn.Cell):
    """Computes x · σ(excite(gather(x))) of x [N, C, S, S], at global extent (Hu et al., arXiv 1810.12348, section 3).

    θ⁻ gathers by the mean and has no parameters. θ gathers by one depthwise convolution over the whole map and
    BatchNorm. θ⁺ adds ReLU and the 1x1 excite to θ. This follows the authors' Caffe models (RN50-GEPF, GEP, GEPP), with
    the paper's parameter counts (31.2 and 33.7 million with BatchNorm's statistics). timm leaves out the ReLU between
    gather and excite; MindSpore's GENet has a 3x3 convolution of stride 2 before a gather of half the size in stage 1.

    `variant` is "minus" (θ⁻), "" (θ) or "plus" (θ⁺). θ and θ⁺ fit maps of `size` only, θ⁻ fits any map.
    """

    standard = False

    def __init__(self, channels: int, variant: str, size: int, norm: Norm) -> None:
        super().__init__()
        layers = OrderedDict(conv1=GlobalDepthwise(channels, size), norm1=norm(channels)) if variant != "minus" else {}
        self.gather = nn.SequentialCell(layers) if layers else None
        self.mlp = Excite(channels) if variant == "plus" else None

    def construct(self, x: Tensor) -> Tensor:
        """Map [N, C, S, S] to [N, C, S, S]."""
        context = mean(x, self.standard) if self.gather is None else self.gather(x)
        if self.mlp is not None:
            context = self.mlp(context)
        return x * broadcast_hw(ops.sigmoid(context), x, self.standard)


def make_gate(attention: str, channels: int, size: int, norm: Norm) -> nn.Cell | None:
    """Return the attention cell of one block: "" (none), "se", "ge-minus" (θ⁻), "ge" (θ) or "ge-plus" (θ⁺)."""
    if attention == "":
        return None
    if attention == "se":
        return SqueezeExcite(channels)
    return GatherExcite(channels, attention.removeprefix("ge").removeprefix("-"), size, norm)
