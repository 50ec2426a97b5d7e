"""Named recipes: one readable row each, with its source and what to expect from it.

The comment above a row is what `python -m resnet_fn.recipes` says of it.
"""

from resnet_fn.config import Recipe, closest

RECIPES: dict[str, Recipe] = {
    # The package's own digits (1,437 training images), up-sampled to 16x16: about a minute on two CPU cores.
    "digits": Recipe(name="digits", max_shift=1, max_rotation=15.0, max_zoom=0.1),
}


def recipe(name: str) -> Recipe:
    """Return the recipe `name`.

    Raises:
        ValueError: an unknown name, with the nearest valid ones.
    """
    if name not in RECIPES:
        raise ValueError(f"recipe: {name!r} is unknown; {closest(name, RECIPES)}")
    return RECIPES[name]


if __name__ == "__main__":
    from resnet_fn import cli, recipe_list

    cli.run("recipes", recipe_list.main)
