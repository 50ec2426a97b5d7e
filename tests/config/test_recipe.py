import dataclasses

import pytest

from resnet_fn import recipes
from resnet_fn.config.cli import UsageError
from resnet_fn.config.fields import to_dict
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe, recipe_from_dict
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


NEEDY = [f for f in dataclasses.fields(Recipe) if any(not need.always for need in f.metadata["needs"])]


@pytest.mark.parametrize("name", sorted(field.name for field in NEEDY))
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
