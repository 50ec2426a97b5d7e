"""The net that a recipe describes."""

import mindspore

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.input_spec import InputSpec
from resnet_fn.models import create_model
from resnet_fn.models.parts import freeze
from resnet_fn.models.resnet import ResNet


def build_net(recipe: Recipe, spec: InputSpec) -> ResNet:
    """The recipe's net for what it is fed, initialised from the recipe's seed; frozen parts have no gradient."""
    if recipe.model in ("genet50", "genet50_plus") and recipe.evaluation_size != recipe.image_size:
        raise ValueError(
            f"model: {recipe.model} fits one image size only, and is evaluated at {recipe.evaluation_size} instead of "
            f"{recipe.image_size}; give --eval-size {recipe.image_size}"
        )
    mindspore.set_seed(recipe.seed + 1)  # MindSpore reads 0 as "no seed given"
    net = create_model(
        recipe.model,
        num_classes=len(spec.classes),
        in_channels=spec.channels,
        stem=recipe.stem,
        norm=recipe.norm,
        initialisation=recipe.initialisation,
        zero_init_residual=recipe.zero_init_residual,
        precision=recipe.precision,
        image_size=recipe.image_size,
    )
    freeze(net, recipe.freeze, recipe.train_only)
    return net
