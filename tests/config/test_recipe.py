"""Recipes and options: aliases, copies, stored forms, and the message for each wrong value."""

import copy
import dataclasses
import inspect
import json
import pickle
from pathlib import Path

import pytest

from resnet_fn import recipes
from resnet_fn.config import declaration
from resnet_fn.config.declaration import setting
from resnet_fn.config.draft import Source
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.settings import Settings
from resnet_fn.config.stored import draft_of_run, recipe_from_dict, stored_settings
from resnet_fn.config.values import to_dict
from resnet_fn.train import parse


@pytest.mark.parametrize(
    ("flags", "fields"),
    [
        (
            ["--lr", "0.3", "--wd=0", "--bs", "32"],
            {"learning_rate": 0.3, "weight_decay": 0.0, "batch_size": 32},
        ),
        (
            ["--opt", "adamw", "--beta1", "0.8", "--eps", "0.1"],
            {"optimizer": "adamw", "momentum": 0.8, "epsilon": 0.1},
        ),
        (
            ["--recipe", "imagenet_resnet50_v1", "--milestones", "30,60.5", "--no-nesterov"],
            {"milestones": (30.0, 60.5)},
        ),
        (["--min-lr", "0.01", "--data-path", "x", "--output", "y"], {"min_learning_rate": 0.01}),
    ],
)
def test_the_usual_aliases_are_accepted(flags, fields):
    recipe, *_ = parse(flags)
    assert {name: getattr(recipe, name) for name in fields} == fields


def test_the_example_in_declarations_docstring_is_true(says):
    about = " ".join(declaration.__doc__.split())
    line = Recipe.declarations["learning_rate"].explain(0.2)
    assert f'"{line.replace(", not scaled by workers", "")}"' in about
    with pytest.raises(ValueError) as caught:
        Recipe(learning_rate=-1)
    assert f'"{caught.value}"' in about


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda config: pickle.loads(pickle.dumps(config))]
)
def test_settings_can_be_copied(copied):
    options = RunOptions(log_every=1, keep_last=5)
    copies = (copied(options), options.changed(), copied(options).changed())
    for config in (options, *copies):
        assert config == options
        assert hash(config) == hash(options)
        assert vars(config) == vars(options)
        assert config.chosen == {"log_every": Source.FLAG, "keep_last": Source.FLAG}
    assert copied(options) != RunOptions(log_every=2, keep_last=5)


def test_settings_cannot_be_assigned(raises_line):
    recipe = Recipe()
    with raises_line("Recipe.epochs", "Recipe.changed(…)", kind=AttributeError):
        recipe.epochs = 3
    with raises_line("Recipe.epochs", "deleted", kind=AttributeError):
        del recipe.epochs
    assert recipe == Recipe()


@pytest.mark.parametrize(
    "recipe", [*recipes.RECIPES.values(), Recipe(epochs=3, optimizer="lion")], ids=repr
)
def test_a_printed_recipe_makes_the_recipe(recipe):
    assert eval(repr(recipe), {"Recipe": Recipe}) == recipe


def test_recipes_are_no_dataclasses():
    """`replace` would pass all settings as if they were chosen."""
    with pytest.raises(TypeError):
        dataclasses.replace(Recipe(), seed=1)


def test_help_shows_the_settings_types():
    parameters = inspect.signature(Recipe).parameters
    assert parameters["mean"].annotation == tuple[float, ...]
    assert [*parameters] == [*Recipe.declarations]


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (
            lambda: Recipe().changed(lerning_rate=0.1),
            "recipe: |'lerning_rate'|did you mean learning_rate",
        ),
        (lambda: Recipe(lr=0.1), "recipe: |'lr'|did you mean learning_rate"),
        (lambda: recipes.finetune(head_lr=0.1), "recipe: |'head_lr'|give head_lr_factor"),
        (
            lambda: recipe_from_dict({"batchsize": 3}),
            "recipe: |'batchsize'|did you mean batch_size",
        ),
        (lambda: RunOptions(device="GPU"), "device: 'GPU' |CPU, Ascend"),
        (lambda: Recipe(log_every=5), "recipe: |'log_every'|setting of RunOptions"),
        (lambda: RunOptions(epochs=5), "options: |'epochs'|setting of Recipe"),
        (lambda: RunOptions(resume=""), "resume: ''|give auto or a path"),
    ],
)
def test_unknown_names_and_wrong_options_are_named(make, parts, raises_line):
    with raises_line(*parts.split("|")):
        make()


@pytest.mark.parametrize("rate", [0.1, 0.07, 0.2, 1e-6])
@pytest.mark.parametrize("learning_rate", [0.01, 0.03, 0.0013])
def test_a_stored_head_learning_rate_keeps_its_bits(rate, learning_rate):
    """The step multiplies the float32 rate by the factor's float32: the factor is the old
    quotient.
    """
    stored = to_dict(recipes.finetune(learning_rate=learning_rate))
    del stored["head_lr_factor"]
    assert recipe_from_dict({**stored, "head_learning_rate": 0.0}).head_lr_factor == 1
    again = recipe_from_dict({**stored, "head_learning_rate": rate})
    assert again.head_lr_factor == rate / learning_rate
    assert recipe_from_dict(to_dict(again)) == again


def test_the_head_keeps_ten_times_any_learning_rate():
    for changes in ({}, {"learning_rate": 1e-6}):
        assert recipes.finetune(**changes).head_lr_factor == 10


def test_other_projects_head_rates_get_a_hint(raises_line):
    for flags in (["--head-lr", "0.1"], ["--head-learning-rate=0.1"]):
        with raises_line(flags[0].partition("=")[0], "give --head-lr-factor", "--learning-rate"):
            parse(["--recipe", "finetune", *flags])
    for name in ("head_lr", "head_learning_rate", "head-lr"):
        Path("mine.toml").write_text(f'extends = "finetune"\n{name} = 0.1\n')
        with raises_line("mine.toml line 2", repr(name), "give head_lr_factor", "learning_rate"):
            parse(["--recipe", "mine.toml"])


def test_a_stored_average_without_ema_warmup_has_none():
    stored = to_dict(Recipe(ema=0.99))
    assert stored.pop("ema_warmup") is True
    assert recipe_from_dict(stored).ema_warmup is False
    draft = draft_of_run({"recipe": stored, "options": {}}).complete()
    assert Recipe.from_draft(draft).ema_warmup is False
    assert parse(["--ema", "0.99"])[0].ema_warmup is True
    assert recipes.recipe("imagenet_resnet50_v2").ema_warmup is False  # torchvision's average


def test_docstrings_of_recipe_and_options_explain_each_setting():
    assert (
        "\n    learning_rate: peak learning rate, not scaled by workers; default 0.2; "
        in inspect.getdoc(Recipe)
    )
    for config in (Recipe, RunOptions):
        for name, declared in config.declarations.items():
            assert declared.meaning, name
            assert f" {name}: {declared.meaning}" in config.__doc__


def test_help_has_what_zero_means_for_optimizers():
    for name, values in (("epsilon", "1e-8 (LAMB: 1e-6)"), ("beta2", "0.999 (Lion: 0.99)")):
        assert Recipe.declarations[name].meaning.endswith(f"; 0: {values}")


def test_milestones_that_are_never_reached_are_warned_of(says):
    v1 = recipes.recipe("imagenet_resnet50_v1")
    assert v1.notes == ()
    for epochs, late in ((40, "60"), (20, "30, 60")):
        (note,) = v1.changed(epochs=epochs).notes
        says(note, "warning: ", f"milestones {late}: ", f"epoch {epochs}")


def test_a_stored_runs_draft_has_the_settings_types():
    """JSON has lists for tuples, which --help would show as values that the run has changed."""
    recipe = recipes.recipe("digits")
    stored = json.loads(json.dumps({"recipe": to_dict(recipe), "options": {}}))
    assert Recipe.unchecked(draft_of_run(stored).plain_values()) == recipe


def test_a_stored_recipe_counts_as_a_file():
    """As the recipe file which the run writes."""
    stored = recipe_from_dict(to_dict(recipes.finetune(image_size=16, optimizer="adam")))
    assert stored.chosen["image_size"] is Source.FILE  # a default of `Recipe`, not of finetune
    assert not {"nesterov", "policy_ops"} & stored.chosen.keys()  # without effect


def test_sgds_learning_rate_for_adam_is_warned_of(says):
    adam = Recipe(optimizer="adamw", nesterov=False, learning_rate=0.2)
    says(*adam.notes, "warning: ", "learning_rate 0.2", "0.001")
    assert adam.changed(learning_rate=1e-3).notes == ()
    lars, lamb = (
        Recipe(optimizer=name, learning_rate=1e-3, weight_decay=0.0).notes
        for name in ("lars", "lamb")
    )
    assert (lars[0].split()[-1], lamb[0].split()[-1]) == ("SGD", "Adam")


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"beta2": 1.0}, "beta2: 1.0|[0, 1)|give a number in it"),
        ({"loss": "own"}, "loss: 'own'|resnet_fn.fit|cross_entropy"),
        ({"batch_size": 0}, "batch_size: 0|1 or more"),
        ({"batch_size": 6.5}, "batch_size: 6.5|a whole number"),
        ({"epochs": 10**400}, "epochs: 1000|is too large; give a smaller number"),
        ({"seed": 4294967295}, "seed: 4294967295|[0, 4294967294]"),
        ({"learning_rate": float("nan")}, "learning_rate: nan|give a number"),
        ({"warmup_epochs": 30.0}, "warmup_epochs: 30.0|epochs 20"),
        (
            {"schedule": "step", "milestones": (5.0, -1.0)},
            "milestones: (5.0, -1.0)|give more than 0",
        ),
        (
            {"schedule": "step", "milestones": ("5", "a")},
            "milestones: ('5', 'a')|a list of numbers",
        ),
        (
            {"schedule": "step", "milestones": (5.0,), "milestone_factor": 10.0},
            "milestone_factor: 10.0|(0, 1)",
        ),
        ({"dataset": "imagefolder", "crop_padding": 4}, "crop_padding: 4|sets in memory; give 0"),
        ({"policy": "trivialaugment"}, "policy: 'trivialaugment'|colour images|digits"),
        ({"repeats": 7}, "repeats: 7|64"),
        (
            {"dataset": "imagefolder", "eval_size": 64, "eval_resize": 60},
            "eval_resize: 60|below|64|give 0",
        ),
    ],
)
def test_a_recipes_error_names_setting_value_and_fix(fields, parts, raises_line):
    with raises_line(*parts.split("|")):
        Recipe(**fields)


def test_every_recipe_survives_json():
    for recipe in (
        *recipes.RECIPES.values(),
        Recipe(schedule="step", milestones=(30.0, 60.0), epochs=90),
    ):
        assert recipe_from_dict(to_dict(recipe)) == recipe
    assert recipe_from_dict({"optimizer": "lamb", "nesterov": True, "policy_ops": 3}) == Recipe(
        optimizer="lamb"
    )


class NewerSettings(Settings):
    kept: int = setting("group", 1, "a setting of all versions")
    added: int = setting("group", 2, "a newer setting")
    points: tuple[float, ...] = setting(
        "group", (3.0,), "a newer setting, whose default is the old behaviour"
    )


def test_a_missing_stored_setting_has_its_default():
    for stored, values in (
        ({"kept": 5}, {"kept": 5, "added": 2, "points": (3.0,)}),
        ({"kept": 5, "added": 6, "points": []}, {"kept": 5, "added": 6, "points": ()}),
    ):
        assert vars(stored_settings(NewerSettings, stored)) == values
