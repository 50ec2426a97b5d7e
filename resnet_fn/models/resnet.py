"""Residual networks (He et al., arXiv 1512.03385) on torchvision's parameter tree and padding.

Everything that a port gets wrong silently is explicit here: padding 1/1 (never `same`, which pads 0/1 at stride 2),
the bottleneck's stride on its 3x3 convolution (torchvision's "v1.5"), BatchNorm eps 1e-5 and MindSpore's momentum
0.9 (PyTorch's 0.1: the meaning is inverted).
"""

from collections.abc import Callable

from mindspore import Tensor, nn

BATCH_NORM_EPS = 1e-5
BATCH_NORM_MOMENTUM = 0.9  # moving = 0.9 · moving + 0.1 · batch

Norm = Callable[[int], nn.Cell]


def batch_norm(channels: int) -> nn.Cell:
    """BatchNorm over [N, channels, H, W] with PyTorch's eps and momentum."""
    return nn.BatchNorm2d(channels, eps=BATCH_NORM_EPS, momentum=BATCH_NORM_MOMENTUM)


def no_norm(channels: int) -> nn.Cell:
    """The identity: for nets whose samples must not see each other (tests of the invariances)."""
    return nn.Identity()


def conv(in_channels: int, out_channels: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """A convolution without bias, padded by (kernel − 1) / 2 on every side."""
    padding = (kernel - 1) // 2
    return nn.Conv2d(in_channels, out_channels, kernel, stride, pad_mode="pad", padding=padding, has_bias=False)


class BasicBlock(nn.Cell):
    """Two 3x3 convolutions; the first one strides."""

    expansion = 1

    def __init__(self, in_channels: int, width: int, stride: int, norm: Norm, downsample: nn.Cell | None) -> None:
        super().__init__()
        self.conv1 = conv(in_channels, width, 3, stride)
        self.bn1 = norm(width)
        self.conv2 = conv(width, width, 3)
        self.bn2 = norm(width)
        self.relu = nn.ReLU()
        self.downsample = downsample

    def construct(self, x: Tensor) -> Tensor:
        """[N, C, H, W] to [N, C\', H\', W\'] (the net: to logits [N, num_classes])."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x))
        return self.relu(x + shortcut)


class Bottleneck(nn.Cell):
    """1x1 reduce, 3x3 (strides), 1x1 expand by 4."""

    expansion = 4

    def __init__(self, in_channels: int, width: int, stride: int, norm: Norm, downsample: nn.Cell | None) -> None:
        super().__init__()
        self.conv1 = conv(in_channels, width, 1)
        self.bn1 = norm(width)
        self.conv2 = conv(width, width, 3, stride)
        self.bn2 = norm(width)
        self.conv3 = conv(width, width * self.expansion, 1)
        self.bn3 = norm(width * self.expansion)
        self.relu = nn.ReLU()
        self.downsample = downsample

    def construct(self, x: Tensor) -> Tensor:
        """[N, C, H, W] to [N, C\', H\', W\'] (the net: to logits [N, num_classes])."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        return self.relu(x + shortcut)


class ResNet(nn.Cell):
    """A residual network: stem, stages of blocks, mean over H and W, one Dense layer.

    Input float32 [N, in_channels, H, W]; output logits [N, num_classes]. Parameters are named as torchvision's,
    with MindSpore's leaf names: `layer1.0.bn1.gamma`.

    Args:
        block: BasicBlock or Bottleneck.
        depths: blocks in each stage.
        widths: the blocks' inner channels in each stage; from the second stage on, the first block strides by 2.
        num_classes: outputs.
        in_channels: channels of the images.
        stem: "imagenet" (7x7 stride 2, then 3x3 max-pool stride 2) or "cifar" (3x3 stride 1, no pool).
        norm: what follows each convolution, as a function of its channels.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: tuple[int, ...],
        widths: tuple[int, ...],
        num_classes: int,
        in_channels: int = 3,
        stem: str = "imagenet",
        norm: Norm = batch_norm,
    ) -> None:
        super().__init__()
        self.conv1 = conv(in_channels, widths[0], 7, 2) if stem == "imagenet" else conv(in_channels, widths[0], 3)
        self.bn1 = norm(widths[0])
        self.relu = nn.ReLU()
        # Explicit padding 1/1 as in PyTorch: the max over the border must not shift by a pixel, as `same` does.
        self.maxpool = nn.MaxPool2d(3, 2, pad_mode="pad", padding=1) if stem == "imagenet" else nn.Identity()
        channels = widths[0]
        stages = []
        for index, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            stages.append(_stage(block, channels, width, depth, 1 if index == 0 else 2, norm))
            channels = width * block.expansion
            # Attributes, not a list: torchvision's names are layer1, layer2, …
            setattr(self, f"layer{index + 1}", stages[-1])
        self._stages = tuple(stages)
        self.fc = nn.Dense(channels, num_classes)

    def construct(self, x: Tensor) -> Tensor:
        """[N, C, H, W] to [N, C\', H\', W\'] (the net: to logits [N, num_classes])."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for stage in self._stages:
            x = stage(x)
        return self.fc(x.mean((2, 3)))


def _stage(
    block: type[BasicBlock] | type[Bottleneck], channels: int, width: int, depth: int, stride: int, norm: Norm
) -> nn.SequentialCell:
    blocks = []
    for index in range(depth):
        stride = stride if index == 0 else 1
        downsample = None
        if stride != 1 or channels != width * block.expansion:
            # "Option B" of the paper: a projection wherever the shape changes.
            out = width * block.expansion
            downsample = nn.SequentialCell([conv(channels, out, 1, stride), norm(out)])
        blocks.append(block(channels, width, stride, norm, downsample))
        channels = width * block.expansion
    return nn.SequentialCell(blocks)
