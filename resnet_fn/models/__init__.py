"""This package builds residual networks by name. `MODELS` maps each name to the net's design."""

import dataclasses

import mindspore
from mindspore import nn

from resnet_fn.config.foreign_flags import advice_on_value
from resnet_fn.config.hints import suggest_name
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.input_spec import InputSpec
from resnet_fn.models.attention import GlobalDepthwise
from resnet_fn.models.convolution import use_products
from resnet_fn.models.init import initialise
from resnet_fn.models.layers import Dense
from resnet_fn.models.parts import freeze
from resnet_fn.models.resnet import BasicBlock, Bottleneck, Design, ResNet, batch_norm

MODELS: dict[str, Design] = {
    "resnet18": Design(BasicBlock, (2, 2, 2, 2)),
    "resnet34": Design(BasicBlock, (3, 4, 6, 3)),
    "resnet50": Design(Bottleneck, (3, 4, 6, 3)),
    "resnet101": Design(Bottleneck, (3, 4, 23, 3)),
    "resnet152": Design(Bottleneck, (3, 8, 36, 3)),
    "resnext50_32x4d": Design(Bottleneck, (3, 4, 6, 3), groups=32, base_width=4),
    "wide_resnet50_2": Design(Bottleneck, (3, 4, 6, 3), base_width=128),
    "se_resnet18": Design(BasicBlock, (2, 2, 2, 2), attention="se"),
    "se_resnet34": Design(BasicBlock, (3, 4, 6, 3), attention="se"),
    "se_resnet50": Design(Bottleneck, (3, 4, 6, 3), attention="se"),
    "se_resnet101": Design(Bottleneck, (3, 4, 23, 3), attention="se"),
    "genet50_minus": Design(Bottleneck, (3, 4, 6, 3), attention="ge-minus"),
    "genet50": Design(Bottleneck, (3, 4, 6, 3), attention="ge"),
    "genet50_plus": Design(Bottleneck, (3, 4, 6, 3), attention="ge-plus"),
    # resnet8 to resnet110 are from section 4.2 of arXiv 1512.03385, but its shortcuts pad with
    # zeros (option A). Here the shortcuts are projections (option B).
    **{
        f"resnet{6 * n + 2}": Design(BasicBlock, (n, n, n), (16, 32, 64), stem="cifar")
        for n in (1, 3, 5, 7, 9, 18)
    },
}

_NORMS = {"batch": batch_norm, "none": lambda channels: nn.Identity()}


def check_model(name: str) -> None:
    """Raise a ValueError if no net has this name."""
    if name not in MODELS:
        hint = advice_on_value("model", name) or suggest_name(name, MODELS)
        raise ValueError(f"model: {name!r} is unknown; {hint}")


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
    image_size: int = 224,
) -> ResNet:
    """Build and initialise a residual network.

    Args:
        name: the net's name. `resnet18` to `resnet152`, `resnext50_32x4d` and `wide_resnet50_2` are
            torchvision's nets. `se_resnet18` to `se_resnet101` have squeeze-excite.
            `genet50_minus`, `genet50` and `genet50_plus` have gather-excite. `resnet8`, `resnet20`,
            `resnet32`, `resnet44`, `resnet56` and `resnet110` are for CIFAR.
        num_classes: number of classes.
        in_channels: number of image channels.
        stem: first layers, "imagenet", "cifar" or "d" (ResNet-D). "" selects the usual stem of
            `name`.
        norm: "batch" for BatchNorm, or "none" for no normalisation.
        initialisation: "torchvision", "torch", "he_uniform" or "xavier_uniform", seeded by
            `mindspore.set_seed`.
        zero_init_residual: whether gamma starts at 0 in the last BatchNorm of each block.
        precision: "fp32", or "fp16" to compute most convolutions and Dense layers in float16 with
            float32 weights.
        image_size: height and width of the images in pixels. Only `genet50` and `genet50_plus`
            depend on `image_size`.

    Returns:
        A net that maps images, float32 [N, in_channels, H, W], to logits [N, num_classes].

    Raises:
        ValueError: if `name` or `initialisation` is unknown.
    """
    check_model(name)
    design = dataclasses.replace(MODELS[name], stem=stem or MODELS[name].stem)
    net = ResNet(design, num_classes, in_channels, _NORMS[norm], image_size)
    initialise(net, initialisation, zero_init_residual)
    if precision == "fp32":
        use_products(net)
    else:
        for _, cell in net.cells_and_names():
            # BatchNorm and the gather, which sums over a whole feature map, stay in float32.
            if isinstance(cell, nn.BatchNorm2d | GlobalDepthwise):
                cell.to_float(mindspore.float32)
            elif isinstance(cell, nn.Conv2d | Dense):
                cell.to_float(mindspore.float16)
    return net


def build_net(recipe: Recipe, spec: InputSpec) -> ResNet:
    """Build a recipe's net, initialise its weights with the recipe's seed, and freeze the parts not
    to be trained.
    """
    if recipe.model in ("genet50", "genet50_plus") and recipe.evaluation_size != recipe.image_size:
        raise ValueError(
            f"model: {recipe.model} fits only images of {recipe.image_size} pixels, but evaluation "
            f"uses {recipe.evaluation_size}; give --eval-size {recipe.image_size}"
        )
    mindspore.set_seed(recipe.seed + 1)  # MindSpore reads 0 as "no seed given"
    names = ("stem", "norm", "initialisation", "zero_init_residual", "precision", "image_size")
    options = {name: getattr(recipe, name) for name in names}
    net = create_model(
        recipe.model, num_classes=len(spec.classes), in_channels=spec.channels, **options
    )
    freeze(net, recipe.freeze, recipe.train_only)
    return net
