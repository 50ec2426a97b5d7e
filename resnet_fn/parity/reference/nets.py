"""The nets of `resnet_fn.models` in PyTorch, written independently, for parity tests and the
ladder.

Parameters have torchvision's names, so that published weights load unchanged. Parameters of
squeeze-excite blocks, gather-excite blocks and the D stem (three 3x3 convolutions) have timm's
names. Importing this module imports torch.
"""

import dataclasses
from collections import OrderedDict

from resnet_fn.config.hints import suggest_name
from resnet_fn.config.packages import how_to_install

try:
    import torch
    from torch import nn
except ImportError:
    raise ValueError(f"the PyTorch reference net needs torch; {how_to_install('torch')}") from None


@dataclasses.dataclass(frozen=True)
class Plan:
    """The architecture of one net in `PLANS`."""

    expansion: int  # a block's output channels divided by its planes
    depths: tuple[int, ...]
    widths: tuple[int, ...] = (64, 128, 256, 512)
    stem: str = "imagenet"
    groups: int = 1
    base_width: int = 64
    attention: str = ""


class SqueezeExcite(nn.Module):
    """A squeeze-and-excitation gate for the channels (arXiv 1709.01507, section 3)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(channels, channels // 16, 1)
        self.fc2 = nn.Conv2d(channels // 16, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply each channel of [N, C, H, W] by a number between 0 and 1."""
        means = x.mean((2, 3), keepdim=True)
        gate = self.fc2(torch.relu(self.fc1(means)))
        return x * torch.sigmoid(gate)


class GatherExcite(nn.Module):
    """A gather-excite gate over whole feature maps, as in the authors' Caffe models (arXiv
    1810.12348).

    `variant` is "minus" for θ⁻, "" for θ, and "plus" for θ⁺. Parameters have timm's names. In θ⁺, a
    ReLU follows the gather's BatchNorm. The package timm omits this ReLU.
    """

    def __init__(self, channels: int, variant: str, size: int, norm: type) -> None:
        super().__init__()
        if variant != "minus":
            conv1 = nn.Conv2d(channels, channels, size, groups=channels, bias=False)
            self.gather = nn.Sequential(OrderedDict(conv1=conv1, norm1=norm(channels)))
        if variant == "plus":
            fc1 = nn.Conv2d(channels, channels // 16, 1)
            fc2 = nn.Conv2d(channels // 16, channels, 1)
            layers = OrderedDict(fc1=fc1, act=nn.ReLU(), fc2=fc2)
            self.mlp = nn.Sequential(layers)
        self.variant = variant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply each channel of [N, C, H, W] by a number between 0 and 1."""
        if self.variant == "minus":
            return x * torch.sigmoid(x.mean((2, 3), keepdim=True))
        context = self.gather(x)
        if self.variant == "plus":
            context = self.mlp(torch.relu(context))
        return x * torch.sigmoid(context)


BASIC = 1
BOTTLENECK = 4


class Block(nn.Module):
    """A residual block: `conv1`, `bn1`, `conv2`, … with ReLUs between, the gate `se`, and the
    shortcut `downsample`.

    A basic block has two 3x3 convolutions. A bottleneck has a 1x1, a 3x3 and a 1x1 convolution, and
    four times as many output channels as planes. The first 3x3 convolution of a block has the
    block's stride.
    """

    def __init__(
        self, inputs: int, planes: int, stride: int, plan: Plan, norm: type, gate: nn.Module
    ) -> None:
        super().__init__()
        width = planes * plan.base_width // 64 * plan.groups
        # Channels, kernel, stride and groups of each convolution.
        convolutions = [(planes, 3, stride, 1), (planes, 3, 1, 1)]
        if plan.expansion == BOTTLENECK:
            convolutions = [
                (width, 1, 1, 1),
                (width, 3, stride, plan.groups),
                (planes * 4, 1, 1, 1),
            ]
        self.depth = len(convolutions)
        for number, (out, kernel, step, groups) in enumerate(convolutions, 1):
            convolution = nn.Conv2d(
                inputs, out, kernel, step, kernel // 2, groups=groups, bias=False
            )
            self.add_module(f"conv{number}", convolution)
            self.add_module(f"bn{number}", norm(out))
            inputs = out
        self.se = gate
        self.downsample: nn.Module | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, C, H, W] to [N, C', H', W']."""
        shortcut = x if self.downsample is None else self.downsample(x)
        for number in range(1, self.depth + 1):
            convolution = getattr(self, f"conv{number}")
            norm = getattr(self, f"bn{number}")
            x = norm(convolution(x))
            is_last = number == self.depth
            x = self.se(x) if is_last else torch.relu(x)
        return torch.relu(x + shortcut)


class ResNet(nn.Module):
    """A residual network in PyTorch."""

    def __init__(
        self, plan: Plan, num_classes: int, in_channels: int, stem: str, norm: str, image_size: int
    ) -> None:
        super().__init__()
        make_norm = nn.BatchNorm2d if norm == "batch" else nn.Identity
        width = plan.widths[0]
        if stem == "d":
            half = width // 2
            self.conv1: nn.Module = nn.Sequential(
                nn.Conv2d(in_channels, half, 3, 2, 1, bias=False), make_norm(half), nn.ReLU(),
                nn.Conv2d(half, half, 3, 1, 1, bias=False), make_norm(half), nn.ReLU(),
                nn.Conv2d(half, width, 3, 1, 1, bias=False),
            )  # fmt: skip
        else:
            kernel, stride, padding = (7, 2, 3) if stem == "imagenet" else (3, 1, 1)
            self.conv1 = nn.Conv2d(in_channels, width, kernel, stride, padding, bias=False)
        self.bn1 = make_norm(width)
        self.maxpool: nn.Module = nn.Identity()
        size = image_size
        if stem != "cifar":
            self.maxpool = nn.MaxPool2d(3, 2, 1)
            size = -(-image_size // 4)
        channels = width
        stages = zip(plan.depths, plan.widths, strict=True)
        for index, (depth, planes) in enumerate(stages):
            blocks = []
            for number in range(depth):
                stride = 2 if index > 0 and number == 0 else 1
                size = -(-size // stride)
                out = planes * plan.expansion
                gate = _gate(plan.attention, out, size, make_norm)
                block = Block(channels, planes, stride, plan, make_norm, gate)
                if stride != 1 or channels != out:
                    block.downsample = _downsample(channels, out, stride, stem == "d", make_norm)
                blocks.append(block)
                channels = out
            self.add_module(f"layer{index + 1}", nn.Sequential(*blocks))
        self.depth = len(plan.depths)
        self.fc = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map images [N, in_channels, H, W] to logits [N, num_classes]."""
        x = self.bn1(self.conv1(x))
        x = self.maxpool(torch.relu(x))
        for index in range(self.depth):
            x = getattr(self, f"layer{index + 1}")(x)
        return self.fc(x.mean((2, 3)))


def _gate(attention: str, channels: int, size: int, norm: type) -> nn.Module:
    if not attention:
        return nn.Identity()
    if attention == "se":
        return SqueezeExcite(channels)
    return GatherExcite(channels, attention.removeprefix("ge_"), size, norm)


def _downsample(channels: int, out: int, stride: int, average: bool, norm: type) -> nn.Module:
    if not average:
        convolution = nn.Conv2d(channels, out, 1, stride, bias=False)
        return nn.Sequential(convolution, norm(out))
    pool: nn.Module = nn.Identity()
    if stride > 1:
        pool = nn.AvgPool2d(2, stride, ceil_mode=True, count_include_pad=False)
    convolution = nn.Conv2d(channels, out, 1, bias=False)
    return nn.Sequential(pool, convolution, norm(out))


PLANS: dict[str, Plan] = {
    "resnet18": Plan(BASIC, (2, 2, 2, 2)),
    "resnet34": Plan(BASIC, (3, 4, 6, 3)),
    "resnet50": Plan(BOTTLENECK, (3, 4, 6, 3)),
    "resnet101": Plan(BOTTLENECK, (3, 4, 23, 3)),
    "resnet152": Plan(BOTTLENECK, (3, 8, 36, 3)),
    "resnext50_32x4d": Plan(BOTTLENECK, (3, 4, 6, 3), groups=32, base_width=4),
    "wide_resnet50_2": Plan(BOTTLENECK, (3, 4, 6, 3), base_width=128),
    "se_resnet18": Plan(BASIC, (2, 2, 2, 2), attention="se"),
    "se_resnet34": Plan(BASIC, (3, 4, 6, 3), attention="se"),
    "se_resnet50": Plan(BOTTLENECK, (3, 4, 6, 3), attention="se"),
    "se_resnet101": Plan(BOTTLENECK, (3, 4, 23, 3), attention="se"),
    "genet50_minus": Plan(BOTTLENECK, (3, 4, 6, 3), attention="ge_minus"),
    "genet50": Plan(BOTTLENECK, (3, 4, 6, 3), attention="ge_"),
    "genet50_plus": Plan(BOTTLENECK, (3, 4, 6, 3), attention="ge_plus"),
}

for _depth in (1, 3, 5, 7, 9, 18):
    _name = f"resnet{6 * _depth + 2}"
    _depths = (_depth, _depth, _depth)
    PLANS[_name] = Plan(BASIC, _depths, (16, 32, 64), "cifar")


def reference_net(
    name: str,
    *,
    num_classes: int = 1000,
    in_channels: int = 3,
    stem: str = "",
    norm: str = "batch",
    image_size: int = 224,
    zero_init_residual: bool = False,
) -> nn.Module:
    """Build the PyTorch version of the net that `create_model` builds with the same arguments.

    An empty `stem` selects the net's usual stem. The net is in training mode, with torchvision's
    initialisation from torch's global seed.
    """
    if (plan := PLANS.get(name)) is None:
        raise ValueError(f"model: {name!r} is unknown; {suggest_name(name, PLANS)}")
    stem = stem or plan.stem
    net = ResNet(plan, num_classes, in_channels, stem, norm, image_size)
    if zero_init_residual and norm == "batch":
        for block in net.modules():
            if isinstance(block, Block):
                last = block.get_submodule(f"bn{block.depth}")
                nn.init.zeros_(last.weight)
    return net
