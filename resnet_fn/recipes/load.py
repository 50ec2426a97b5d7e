"""A recipe by its name, or from a file."""

from pathlib import Path

from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe_file import RecipeFile, read_recipe_file
from resnet_fn.config.settings_file import ENDINGS
from resnet_fn.recipes import RECIPES, recipe


def load_recipe(name: str) -> RecipeFile:
    """A recipe by its name, or from a file that ends in .toml or .json, with what the file says of how to run it.

    Raises:
        ValueError: an unknown name, with the nearest; what is wrong with a line of a file. (As a whole it is not
            checked yet: flags may mend it.)
    """
    if name.endswith(ENDINGS):
        try:
            return read_recipe_file(Path(name), RECIPES)
        except ValueError as error:
            raise ValueError(f"recipe: {error}" if str(error).startswith(f"{name}: ") else str(error)) from None
    if {".", "/"} & set(name):
        raise ValueError(f"recipe: {name!r} is unknown; a file's name ends in .toml or .json")
    return RecipeFile(recipe(name))


def load_run(name: str, options: RunOptions) -> RecipeFile:
    """A recipe by its name or from a file, checked, with the file's options where `options` has defaults."""
    own = {key: value for key, value in vars(options).items() if value != getattr(RunOptions(), key)}
    return load_recipe(name).complete(**own)
