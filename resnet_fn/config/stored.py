"""Settings that a run or a checkpoint has stored, by this version or an earlier one."""

from collections.abc import Mapping
from typing import Any

from resnet_fn.config.draft import Draft, Source
from resnet_fn.config.optimizers import OPTIMIZERS
from resnet_fn.config.options import OF_ONE_START, RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.setting_names import check_names
from resnet_fn.config.settings import AnySettings, draft_of


def recipe_from_dict(settings: Mapping[str, Any]) -> Recipe:
    """Make a recipe from the dict that `to_dict` has made and a checkpoint has stored."""
    # `Recipe(**settings)` would reject settings without effect, which a saved recipe may have; a
    # draft drops these.
    draft = draft_of(_stored_recipe(settings)).complete(resumes=True)
    # All settings in use count as those of a recipe file, which the run has written, too.
    return Recipe.unchecked(draft.plain_values(), dict.fromkeys(draft.in_use(), Source.FILE))


def draft_of_run(settings: Mapping[str, Any]) -> Draft:
    """Make a draft (unchecked settings) from a run's config.json, without options such as
    `out_dir`.
    """
    options = {
        name: value for name, value in settings["options"].items() if name not in OF_ONE_START
    }
    return draft_of(_stored_recipe(settings["recipe"]), stored_settings(RunOptions, options))


def _stored_recipe(settings: Mapping[str, Any]) -> Recipe:
    """Make a recipe, without checks of its values, from what this version or an earlier one has stored."""
    settings = dict(settings)
    _replace_head_learning_rate(settings)
    _replace_own_beta2(settings)
    if settings.get("ema"):
        settings.setdefault("ema_warmup", False)  # earlier versions' averages had none
    return stored_settings(Recipe, settings)


def _replace_head_learning_rate(settings: dict[str, Any]) -> None:
    """Replace the last layer's peak learning rate, which earlier versions stored, by its factor."""
    rate = settings.pop("head_learning_rate", 0)  # 0: learning_rate
    if rate:
        # A learning rate of 0 is rejected later, as in any recipe.
        peak = settings.get("learning_rate") or 1
        is_number = isinstance(rate, int | float) and isinstance(peak, int | float)
        settings["head_lr_factor"] = rate / peak if is_number else rate


def _replace_own_beta2(settings: dict[str, Any]) -> None:
    """Replace an optimizer's own beta2 by 0. Earlier versions stored it as a number, and 0.999 if
    the optimizer reads none. A chosen 0.999 becomes 0, too, which means the same.
    """
    row = OPTIMIZERS.get(str(settings.get("optimizer")))
    if row and settings.get("beta2") == row.value_if_zero.get("beta2", 0.999):
        settings["beta2"] = 0.0


def stored_settings(settings_class: type[AnySettings], stored: Mapping[str, Any]) -> AnySettings:
    """Make a `Recipe` or `RunOptions` of the JSON types in `stored`, without checks of the values.

    Settings that a run has not stored get their defaults. An unknown one raises a ValueError.
    """
    declarations = settings_class.declarations
    check_names(stored, declarations, caller=settings_class.title)
    return settings_class.unchecked(
        {name: declarations[name].convert(value) for name, value in stored.items()}
    )
