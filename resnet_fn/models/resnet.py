"""This module defines residual networks (He et al., arXiv 1512.03385) with torchvision's
padding.
"""

import dataclasses
from collections.abc import Iterator

import mindspore
from mindspore import Tensor, nn, ops

from resnet_fn.models.attention import Norm, make_gate
from resnet_fn.models.batchnorm import BatchNorm2d
from resnet_fn.models.convolution import Conv2d
from resnet_fn.models.layers import AVERAGE_POOL, MAX_POOL, NORM, Dense, conv_arguments
from resnet_fn.models.positions import broadcast_hw


def batch_norm(channels: int) -> nn.Cell:
    """Create a BatchNorm over [N, channels, H, W] with PyTorch's eps and momentum."""
    return BatchNorm2d(channels, **NORM)


def conv(
    in_channels: int, out_channels: int, kernel: int, stride: int = 1, groups: int = 1
) -> Conv2d:
    """Create a convolution that has no bias and pads every side by (kernel − 1) / 2 pixels."""
    return Conv2d(
        in_channels, out_channels, kernel, stride, **conv_arguments((kernel - 1) // 2, groups)
    )


class MaxPool2d(nn.MaxPool2d):
    """Computes 3x3 maxima at stride 2 with a padding of 1 on every side, as in PyTorch.

    The input must not be negative, because the layer pads with zeros on an Ascend card and in
    exported nets.
    """

    def __init__(self) -> None:
        super().__init__(3, 2, **MAX_POOL)
        # nn.MaxPool2d with padding is MaxPool3DWithArgmax. Ascend cards compute this on their
        # scalar cores, ONNX lacks it, and MindIR has it for one batch size only. The pad mode
        # `same` would shift the maxima by a pixel.
        self.standard = mindspore.get_current_device().device_target == "Ascend"
        self.border = ops.Pad(((0, 0), (0, 0), (1, 1), (1, 1)))
        self.maxima = ops.MaxPool(3, 2, "valid")

    def construct(self, x: Tensor) -> Tensor:
        """Map [N, C, H, W] to [N, C, ceil(H / 2), ceil(W / 2)]."""
        return self.maxima(self.border(x)) if self.standard else super().construct(x)


class Block(nn.Cell):
    """A block adds a residual branch of convolutions and norms to a shortcut.

    `width` is the number of channels between the convolutions. `stride` is the stride of the first
    3x3 convolution. `gate` is an attention layer on the residual branch. `downsample` is the
    projection of the shortcut.
    """

    def __init__(
        self,
        in_channels: int,
        width: int,
        out_channels: int,
        stride: int,
        groups: int,
        norm: Norm,
        gate: nn.Cell | None,
        downsample: nn.Cell | None,
    ) -> None:
        super().__init__()
        for number, layer in enumerate(
            self.convolutions(in_channels, width, out_channels, stride, groups), 1
        ):
            setattr(self, f"conv{number}", layer)
            setattr(self, f"bn{number}", norm(layer.out_channels))
        self.relu = nn.ReLU()
        self.se = gate
        self.downsample = downsample

    def construct(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        """Map [N, C, H, W] to [N, C', H', W'].

        `keep`, of shape [N, 1, 1, 1], multiplies the residual branch.
        """
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.branch(x)
        if self.se is not None:
            x = self.se(x)
        if keep is not None:
            x = x * broadcast_hw(keep.astype(x.dtype), x)
        return self.relu(x + shortcut)


class BasicBlock(Block):
    """A basic block has two 3x3 convolutions, and the first one has the stride."""

    expansion, last_norm = 1, "bn2"

    def convolutions(
        self, channels: int, width: int, out: int, stride: int, groups: int
    ) -> Iterator[Conv2d]:
        """Yield the two convolutions."""
        if groups != 1 or width != out:
            raise ValueError(
                f"groups: {groups} groups and a width of {width} do not fit BasicBlock; use "
                "Bottleneck"
            )
        yield conv(channels, out, 3, stride)
        yield conv(out, out, 3)

    def branch(self, x: Tensor) -> Tensor:
        """Compute the residual branch, which maps [N, C, H, W] to [N, C', H', W']."""
        return self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))


class Bottleneck(Block):
    """A bottleneck has a 1x1, a 3x3 and a 1x1 convolution.

    The 3x3 convolution has the stride, as in torchvision.
    """

    expansion, last_norm = 4, "bn3"

    def convolutions(
        self, channels: int, width: int, out: int, stride: int, groups: int
    ) -> Iterator[Conv2d]:
        """Yield the three convolutions."""
        yield conv(channels, width, 1)
        yield conv(width, width, 3, stride, groups)
        yield conv(width, out, 1)

    def branch(self, x: Tensor) -> Tensor:
        """Compute the residual branch, which maps [N, C, H, W] to [N, C', H', W']."""
        x = self.relu(self.bn1(self.conv1(x)))
        return self.bn3(self.conv3(self.relu(self.bn2(self.conv2(x)))))


@dataclasses.dataclass(frozen=True)
class Design:
    """A design holds the settings from which `ResNet` builds a net."""

    block: type[BasicBlock] | type[Bottleneck]
    depths: tuple[int, ...]  # number of blocks in each stage
    # Channels of each stage before the block's expansion. Each stage after the first one begins
    # with stride 2.
    planes: tuple[int, ...] = (64, 128, 256, 512)
    # "imagenet" is a 7x7 convolution and a 3x3 max-pool, both of stride 2. "cifar" is a 3x3
    # convolution of stride 1. "d" (ResNet-D, arXiv 1812.01187, timm's `resnet50d`) is three 3x3
    # convolutions and the max-pool. Its shortcuts average 2x2 pixels before a projection of stride
    # 1.
    stem: str = "imagenet"
    groups: int = 1  # groups of the bottleneck's 3x3 convolution (ResNeXt, arXiv 1611.05431)
    # The bottleneck's width is planes · base_width / 64 · groups. Wide ResNet (arXiv 1605.07146)
    # has 128.
    base_width: int = 64
    attention: str = ""  # name of the attention in each block, as in `make_gate`


class ResNet(nn.Cell):
    """A residual network has a stem, stages of blocks, a mean over height and width, and a Dense
    layer.

    Layers have torchvision's names, but attention layers, the D stem and its shortcuts have timm's
    names. Parameters have MindSpore's names, such as `layer1.0.bn1.gamma`. `image_size` is the
    images' height and width in pixels.
    """

    def __init__(
        self,
        design: Design,
        num_classes: int,
        in_channels: int = 3,
        norm: Norm = batch_norm,
        image_size: int = 224,
    ) -> None:
        super().__init__()
        channels = design.planes[0]
        self.conv1 = _stem(design.stem, in_channels, channels, norm)
        self.bn1 = norm(channels)
        self.relu = nn.ReLU()
        self.maxpool = nn.Identity() if design.stem == "cifar" else MaxPool2d()
        size = image_size if design.stem == "cifar" else -(-image_size // 4)
        stages = []
        for index, planes in enumerate(design.planes):
            stride = 1 if index == 0 else 2
            size = -(-size // stride)
            stages.append(_stage(design, index, channels, stride, size, norm))
            channels = planes * design.block.expansion
            # Stages are attributes, so that their names are layer1, layer2, … as in torchvision.
            setattr(self, f"layer{index + 1}", stages[-1])
        self._stages = tuple(stages)
        self.blocks = tuple(block for stage in stages for block in stage)
        self.fc = Dense(channels, num_classes)

    def construct(
        self, x: Tensor, keep: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Map images, float32 [N, in_channels, H, W], to logits [N, num_classes].

        `keep` [N, blocks] multiplies the residual branches. `mask` [N, features] multiplies the
        input of `fc`.
        """
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        if keep is None:
            for stage in self._stages:
                x = stage(x)
        else:
            for index in range(len(self.blocks)):
                x = self.blocks[index](x, keep[:, index].reshape(-1, 1, 1, 1))
        x = x.mean((2, 3))
        return self.fc(x if mask is None else x * mask)


def _stem(kind: str, in_channels: int, channels: int, norm: Norm) -> nn.Cell:
    if kind == "cifar":
        return conv(in_channels, channels, 3)
    if kind == "imagenet":
        return conv(in_channels, channels, 7, 2)
    half = channels // 2
    layers = [
        conv(in_channels, half, 3, 2),
        norm(half),
        nn.ReLU(),
        conv(half, half, 3),
        norm(half),
        nn.ReLU(),
        conv(half, channels, 3),
    ]
    return nn.SequentialCell(layers)


def _stage(
    design: Design, index: int, channels: int, stride: int, size: int, norm: Norm
) -> nn.SequentialCell:
    planes = design.planes[index]
    width = planes * design.base_width // 64 * design.groups
    out = planes * design.block.expansion
    blocks = []
    for _ in range(design.depths[index]):
        # The paper's option B has a projection wherever the shape changes.
        projects = stride != 1 or channels != out
        downsample = (
            _projection(channels, out, stride, design.stem == "d", norm) if projects else None
        )
        gate = make_gate(design.attention, out, size, norm)
        blocks.append(
            design.block(channels, width, out, stride, design.groups, norm, gate, downsample)
        )
        channels, stride = out, 1
    return nn.SequentialCell(blocks)


def _projection(
    channels: int, out: int, stride: int, average: bool, norm: Norm
) -> nn.SequentialCell:
    if not average:
        return nn.SequentialCell([conv(channels, out, 1, stride), norm(out)])
    # This pool equals PyTorch's with ceil_mode=True and count_include_pad=False.
    pool = nn.Identity() if stride == 1 else nn.AvgPool2d(2, stride, **AVERAGE_POOL)
    return nn.SequentialCell([pool, conv(channels, out, 1), norm(out)])
