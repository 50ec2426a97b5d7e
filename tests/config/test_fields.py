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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "--bach-size 3 --epochs x --learning-rate fast --milestones 30;60 --eval-batch-size 0",
            "unknown argument '--bach-size'; did you mean --batch-size or --eval-batch-size or --eval-size?; "
            "epochs: 'x' is not a whole number; learning_rate: 'fast' is not a number; "
            "milestones: '30;60' is not numbers with commas; eval_batch_size: 0 is too small; give 1 or more",
        ),
        (
            "--batch-size y --loss-scale 64 --keep-last 1 --trust-coefficient 0.1",
            "batch_size: 'y' is not a whole number; trust_coefficient: 0.1 would change nothing: it needs "
            "--optimizer lars; loss_scale: 64.0 would change nothing: it needs --precision fp16; keep_last: 1 would "
            "lose the run if the newest were damaged; give 2 or more",
        ),
        ("--seed 4294967295", "seed: 4294967295 is not in 0..4294967294"),
        # Nothing is said of what depends on a value that cannot be.
        ("--epochs x --warmup-epochs 30", "epochs: 'x' is not a whole number"),
        ("--precision fp61 --loss-scale 64", "precision: 'fp61' is unknown; use one of fp32, fp16"),
        ("--batch-size y --repeats 7", "batch_size: 'y' is not a whole number"),
        (
            "--dataset imagenet --crop-scale 0.5 --max-shift 9",
            "dataset: 'imagenet' is unknown; did you mean imagefolder?",
        ),
    ],
)
def test_all_that_is_wrong_is_told_at_once(words, message):
    with pytest.raises(UsageError) as caught:
        parse(words.split())
    assert str(caught.value) == message
