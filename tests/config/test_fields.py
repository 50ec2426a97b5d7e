"""A setting's declaration is all there is to know of it: its meaning, its bounds, what it needs."""

import dataclasses

import pytest

from resnet_fn.config.cli import UsageError
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.train import parse


def test_every_field_explains_itself():
    for config in (Recipe, RunOptions):
        for field in dataclasses.fields(config):
            assert field.metadata["meaning"], field.name


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
