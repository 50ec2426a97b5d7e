import dataclasses
from pathlib import Path

import pytest

from resnet_fn import recipes
from resnet_fn.config import depends
from resnet_fn.config.cli import UsageError
from resnet_fn.config.hints import near_path
from resnet_fn.config.recipe import Recipe, RunOptions, recipe_from_dict, split_batch, to_dict
from resnet_fn.train import parse


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"batch_size": 0}, "batch_size: 0 is too small; give 1 or more"),
        ({"batch_size": 6.5}, "batch_size: 6.5 is a float; give a int"),
        ({"learning_rate": float("nan")}, "learning_rate: nan is not finite; give a number"),
        ({"schedule": "cosin"}, "schedule: 'cosin' is unknown; use one of cosine, linear"),
        ({"momentum": 1.0}, r"momentum: 1.0 is not in \[0, 1\); give 0.9"),
        ({"momentum": 0.0}, "nesterov: True needs momentum above 0; give --no-nesterov"),
        ({"warmup_epochs": 30.0}, r"warmup_epochs: 30.0 is above epochs \(20\)"),
        ({"min_learning_rate": 1.0}, r"min_learning_rate: 1.0 is above learning_rate \(0.2\)"),
        ({"schedule": "step"}, "go with --schedule step"),
        ({"milestones": (3.0,)}, "go with --schedule step"),
    ],
)
def test_recipe_names_field_value_and_fix(fields, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**fields)


def test_options_are_checked_too():
    with pytest.raises(ValueError, match="keep_last: 1 would lose the run"):
        RunOptions(keep_last=1)
    with pytest.raises(ValueError, match="device: 'GPU' is unknown; use one of CPU, Ascend"):
        RunOptions(device="GPU")


@pytest.mark.parametrize("parts", [(1, 1), (2, 4), (8, 8)])
def test_a_batch_that_divides(parts):
    assert split_batch(64, *parts) * parts[0] * parts[1] == 64


def test_a_batch_that_does_not_divide_names_those_that_would():
    message = "batch_size: 64 does not divide into 3 workers x 2 micro-batches; use 60 or 66, or another --accumulate"
    with pytest.raises(ValueError, match=message):
        split_batch(64, 3, 2)
    with pytest.raises(ValueError, match="use 12, or"):
        split_batch(5, 3, 4)


def test_every_recipe_survives_json():
    for recipe in (*recipes.RECIPES.values(), Recipe(schedule="step", milestones=(30.0, 60.0), epochs=90)):
        assert recipe_from_dict(to_dict(recipe)) == recipe
    with pytest.raises(ValueError, match="recipe: unknown field 'batchsize'; did you mean batch_size"):
        recipe_from_dict({"batchsize": 3})


def test_every_field_explains_itself():
    for config in (Recipe, RunOptions):
        for field in dataclasses.fields(config):
            assert field.metadata["meaning"], field.name


def test_unknown_recipe():
    with pytest.raises(ValueError, match="recipe: 'digit' is unknown; did you mean digits"):
        recipes.recipe("digit")


def test_a_path_that_is_not_there_names_the_nearest():
    """Wherever on the way it goes wrong; and the whole of it where that is there."""
    Path("runs/first/checkpoints/step-00000066").mkdir(parents=True)
    Path("runs/frist/checkpoints").mkdir(parents=True)
    assert near_path("runs/firts", "x") == "did you mean runs/first or runs/frist?"
    whole = "runs/firs/checkpoints/step-00000066"
    assert near_path(whole, "x") == "did you mean runs/first/checkpoints/step-00000066?"
    assert near_path("runs/first/checkpoints/step-00000067", "x") == (
        "did you mean runs/first/checkpoints/step-00000066?"
    )
    assert near_path("rums", "x") == "did you mean runs?"
    assert near_path("/quite/elsewhere", "give a folder") == "give a folder"


@pytest.mark.parametrize("name", sorted(depends._NEEDS))
def test_a_setting_that_would_be_ignored_is_refused(name):
    field = Recipe.__dataclass_fields__[name]
    value = "others" if field.metadata["choices"] else field.default
    flag = "--" + name.replace("_", "-")
    off = [] if name != "smoothing_over" else ["--label-smoothing", "0"]
    off += ["--schedule", "constant"] if name == "min_learning_rate" else []
    with pytest.raises(UsageError, match=rf"^{name}: \S+ would change nothing: it (needs|is for) "):
        parse([flag, str(value), *off])


def test_a_recipes_own_strength_may_stay_when_what_it_belongs_to_is_turned_off():
    recipe, _ = parse(["--recipe", "imagenet_resnet50_a3", "--policy", "", "--policy-noise", "0"])
    assert recipe.policy_magnitude == 18
