"""This package's own evaluation pixels, as one of the sides."""

from resnet_fn import recipes
from resnet_fn.config.cli import UsageError, as_usage_error
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.images import prepare
from resnet_fn.data.preprocess import eval_pixels
from resnet_fn.data.sources.files import IMAGENET_MEAN, IMAGENET_STD, color_spec
from resnet_fn.parity.inputs.pictures import Picture
from resnet_fn.parity.inputs.reading import Sample, Side


def side_of_recipe(name: str) -> Side:
    """Return the side that prepares pictures as this package evaluates with a recipe.

    Raises UsageError for a recipe whose data are not image files.
    """
    with as_usage_error():
        recipe = Recipe.from_draft(recipes.load_recipe(name).complete())
    if not recipe.of_files:
        known = ", ".join(
            recipe_name for recipe_name in recipes.RECIPES if recipes.recipe(recipe_name).of_files
        )
        raise UsageError(f"--recipe: {name} has no image files; give one of {known}")
    spec = color_spec("", (), recipe.mean or IMAGENET_MEAN, recipe.std or IMAGENET_STD)

    def read(picture: Picture) -> Sample:
        with open(picture.path, "rb") as file:
            data = file.read()
        sizes = recipe.evaluation_resize, recipe.evaluation_size
        pixels = eval_pixels(data, *sizes, recipe.interpolation or "bilinear")
        return Sample(prepare(pixels[None], recipe.evaluation_size, spec)[0])

    return Side(f"resnet_fn, recipe {name}", "", read)
