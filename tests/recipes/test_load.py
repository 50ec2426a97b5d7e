import dataclasses
import json
from pathlib import Path

import pytest

from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.recipe_file import recipe_text
from resnet_fn.config.settings import typed_in
from resnet_fn.recipes import RECIPES, load_recipe
from resnet_fn.run.loop import train
from resnet_fn.train import parse


def test_a_files_options_count_where_python_gives_none(write_recipe):
    settings = {"epochs": 3, "log_every": 5, "data_dir": "there", "keep_last": 7}
    given = RunOptions(data_dir="here", keep_last=RunOptions().keep_last)  # typed, though it is the default
    file = load_recipe(write_recipe(settings)).complete(**typed_in(given))
    assert (file.make(Recipe).epochs, file.make(RunOptions)) == (3, RunOptions(data_dir="here", log_every=5))


@pytest.mark.slow
def test_a_run_writes_the_file_that_reproduces_it(device, events, last_state):
    name = "recipe.toml"
    recipe = dataclasses.replace(
        RECIPES["digits"], name="mine", model="resnet8", image_size=8, batch_size=240, epochs=1
    )
    options = {"norms_every": 2, "accumulate": 2, "checkpoint_every": 3, "mode": "pynative", "progress": False}
    options = RunOptions(out_dir="one", **options)
    train(recipe, options)
    assert Path("one", name).read_text() == recipe_text(recipe, options)
    train(*parse(["--recipe", f"one/{name}", "--out-dir", "two"]))
    losses, again = ([event["loss"] for event in events(run, "train")] for run in ("one", "two"))
    assert losses == again
    assert last_state("one")[1] == last_state("two")[1]
    options = json.loads(Path("two/config.json").read_text())["options"]
    assert (options["norms_every"], options["out_dir"], options["resume"]) == (2, "two", "auto")
