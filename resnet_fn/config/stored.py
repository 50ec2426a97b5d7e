"""Settings that a run, a checkpoint or a trace has stored, by any version of this package."""

from collections.abc import Mapping
from typing import Any

from resnet_fn.config.declaration import check_names
from resnet_fn.config.draft import Draft, draft_of, unchecked
from resnet_fn.config.options import OF_ONE_START, RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.settings import changed
from resnet_fn.config.values import as_json


def recipe_from_dict(settings: Mapping[str, Any]) -> Recipe:
    """Make a recipe from the dict that `to_dict` has made and a checkpoint or a trace has
    stored.
    """
    settings = _stored_recipe(settings)
    check_names(settings, Recipe)
    # `Recipe(**settings)` would reject settings without effect, which a saved recipe may have.
    # `changed` checks all values, too, and drops these settings.
    recipe: Recipe = changed(unchecked(Recipe, settings))
    return recipe


def draft_of_run(settings: Mapping[str, Any]) -> Draft:
    """Make a draft (unchecked settings) from a run's config.json, without options such as
    `out_dir`.
    """
    recipe = _stored_recipe(settings["recipe"])
    check_names(recipe, Recipe)
    check_names(settings["options"], RunOptions, caller="options")
    options = {
        name: value for name, value in settings["options"].items() if name not in OF_ONE_START
    }
    options = with_missing_settings(RunOptions, options)
    return draft_of(_unchecked(Recipe, recipe), _unchecked(RunOptions, options))


def _unchecked(settings_class: Any, stored: Mapping[str, Any]) -> Any:
    """Make a `Recipe` or `RunOptions` of JSON types without checks: a list becomes a tuple."""
    declarations = settings_class.declarations
    values = {name: declarations[name].convert(value) for name, value in stored.items()}
    return unchecked(settings_class, values)


def _stored_recipe(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe that any version has stored, as a dict of this version's settings."""
    settings = dict(settings)
    rate = settings.pop("head_learning_rate", 0)  # the last layer's peak rate; 0: learning_rate
    if rate:
        # A learning rate of 0 is rejected later, as in any recipe.
        settings["head_lr_factor"] = rate / (settings.get("learning_rate") or 1)
    return with_missing_settings(Recipe, settings)


def with_missing_settings(settings_class: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings `values` that a run or a trace has stored, and those that it lacks.

    The latter get the values that `if_not_stored` declares, as JSON types.
    """
    missing = {
        name: as_json(declared.if_not_stored)
        for name, declared in settings_class.declarations.items()
    }
    return {**missing, **values}
