"""The net that a recipe describes."""

from typing import Protocol

import mindspore

from resnet_fn.config.recipe import Recipe
from resnet_fn.models import create_model
from resnet_fn.models.resnet import ResNet


class InputKind(Protocol):
    """What a net must know about its data: a `DataSet`, or what a checkpoint says about one that is not here."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names."""

    @property
    def channels(self) -> int:
        """Channels of an image."""


def build_net(recipe: Recipe, dataset: InputKind) -> ResNet:
    """The recipe's net for a data set, initialised from the recipe's seed."""
    if recipe.model in ("genet50", "genet50_plus") and recipe.evaluation_size != recipe.image_size:
        raise ValueError(
            f"model: {recipe.model} fits one image size only, and is evaluated at {recipe.evaluation_size} instead of "
            f"{recipe.image_size}; give --eval-size {recipe.image_size}"
        )
    mindspore.set_seed(recipe.seed + 1)  # MindSpore reads 0 as "no seed given"
    return create_model(
        recipe.model,
        num_classes=len(dataset.classes),
        in_channels=dataset.channels,
        stem=recipe.stem,
        norm=recipe.norm,
        initialisation=recipe.initialisation,
        zero_init_residual=recipe.zero_init_residual,
        precision=recipe.precision,
        image_size=recipe.image_size,
    )
