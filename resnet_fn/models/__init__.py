"""Models by name: one row per variant."""

from collections.abc import Callable

import mindspore
from mindspore import nn

from resnet_fn.config import closest
from resnet_fn.models.init import initialise
from resnet_fn.models.resnet import BasicBlock, Bottleneck, Norm, ResNet, batch_norm, no_norm

_IMAGENET_WIDTHS = (64, 128, 256, 512)


def _imagenet(block: type[BasicBlock] | type[Bottleneck], *depths: int) -> Callable[..., ResNet]:
    def build(num_classes: int, in_channels: int, stem: str, norm: Norm) -> ResNet:
        return ResNet(block, depths, _IMAGENET_WIDTHS, num_classes, in_channels, stem or "imagenet", norm)

    return build


def _cifar(depth: int) -> Callable[..., ResNet]:
    # Section 4.2 of the paper: 6n + 2 layers, three stages of n blocks, 16, 32 and 64 channels. Projection
    # shortcuts (option B) instead of the paper's zero-padding (option A): no strided slice and pad in the graph,
    # 2,752 parameters more (resnet20 with 10 classes: 272,474 instead of 269,722).
    blocks = (depth - 2) // 6

    def build(num_classes: int, in_channels: int, stem: str, norm: Norm) -> ResNet:
        depths = (blocks, blocks, blocks)
        return ResNet(BasicBlock, depths, (16, 32, 64), num_classes, in_channels, stem or "cifar", norm)

    return build


MODELS: dict[str, Callable[..., ResNet]] = {
    "resnet18": _imagenet(BasicBlock, 2, 2, 2, 2),
    "resnet34": _imagenet(BasicBlock, 3, 4, 6, 3),
    "resnet50": _imagenet(Bottleneck, 3, 4, 6, 3),
    "resnet101": _imagenet(Bottleneck, 3, 4, 23, 3),
    "resnet152": _imagenet(Bottleneck, 3, 8, 36, 3),
    "resnet8": _cifar(8),
    "resnet20": _cifar(20),
    "resnet32": _cifar(32),
    "resnet44": _cifar(44),
    "resnet56": _cifar(56),
    "resnet110": _cifar(110),
}

_NORMS = {"batch": batch_norm, "none": no_norm}


def create_model(
    name: str,
    *,
    num_classes: int = 1000,
    in_channels: int = 3,
    stem: str = "",
    norm: str = "batch",
    initialisation: str = "torchvision",
    zero_init_residual: bool = False,
    precision: str = "fp32",
) -> ResNet:
    """Build and initialise a residual network.

    Args:
        name: torchvision's names (`resnet18` … `resnet152`) and the CIFAR family of the paper (`resnet20`,
            `resnet32`, `resnet44`, `resnet56`, `resnet110`; `resnet8` is the same family's smallest).
        num_classes: outputs.
        in_channels: channels of the images: input is float32 [N, in_channels, H, W].
        stem: "imagenet", "cifar", or "" for the family's own.
        norm: "batch", or "none" for a net without BatchNorm.
        initialisation: "torchvision", "torch", "he_uniform" or "xavier_uniform"; random numbers come from
            `mindspore.set_seed`.
        zero_init_residual: start every block as the identity.
        precision: "fp32", or "fp16" for convolutions and Dense in float16 with float32 weights and BatchNorm.

    Raises:
        ValueError: an unknown name, with the nearest valid ones.
    """
    if name not in MODELS:
        raise ValueError(f"model: {name!r} is unknown; {closest(name, MODELS)}")
    net = MODELS[name](num_classes, in_channels, stem, _NORMS[norm])
    initialise(net, initialisation, zero_init_residual)
    if precision == "fp16":
        for _, cell in net.cells_and_names():
            if isinstance(cell, nn.Conv2d | nn.Dense):
                cell.to_float(mindspore.float16)
            elif isinstance(cell, nn.BatchNorm2d):
                cell.to_float(mindspore.float32)
    return net
