"""Options of a recipe file count where Python gives none."""

from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.recipes import load_recipe


def test_a_files_options_count_where_python_gives_none(write_recipe):
    settings = {"epochs": 3, "log_every": 5, "data_dir": "there", "keep_last": 7}
    # typed, though it is the default
    given = RunOptions(data_dir="here", keep_last=RunOptions().keep_last)
    file = load_recipe(write_recipe(settings)).complete(given.chosen_values())
    assert (Recipe.from_draft(file).epochs, RunOptions.from_draft(file)) == (
        3,
        RunOptions(data_dir="here", log_every=5),
    )
