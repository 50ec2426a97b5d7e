"""The list of recipes, and one explained."""

import pytest

from resnet_fn import recipes
from resnet_fn.config import cli
from resnet_fn.recipes import __main__ as recipe_list


def test_recipes_are_listed_and_explained(capsys):
    assert recipe_list.main([]) == 0
    assert recipe_list.main(["digits"]) == 0
    text = capsys.readouterr().out
    for name, recipe in recipes.RECIPES.items():
        assert f"{name}: {recipe.model} on {recipe.dataset}, {recipe.epochs} epochs" in text
        assert len(recipe_list.about(name)) > 20, f"write a comment above the recipe {name}"
    assert " * --max-rotation           15.0         random rotation of a training image, each way [degrees]" in text
    assert "   --momentum               0.9 " in text
    with pytest.raises(cli.UsageError, match="recipe: 'digit' is unknown; "):
        recipe_list.main(["digit"])
