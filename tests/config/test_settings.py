"""Laws of `Draft.resolve`, which merges a recipe, a recipe file and flags; and the list of flags."""

from pathlib import Path

import numpy as np
import pytest

from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.config.settings import draft_of
from resnet_fn.recipes import RECIPES

DECLARED = Recipe.declarations | RunOptions.declarations
# A maintainer decides on each new flag: a person who trains must need it to decide something that
# no flag of this list decides, and its name stays from then on.
FLAGS = """
accumulate allow_other_data batch_size beta2 check_files checkpoint_every class_weights clip_norm
color_jitter crop_padding crop_scale cutmix data_dir data_threads dataset decay_all device
drop_path dropout ema ema_every ema_start ema_warmup epochs epsilon erasing eval_batch_size
eval_every eval_resize eval_size fast_math feed flip freeze group_by head_lr_factor image_size
initialisation interpolation keep_every keep_last label_smoothing label_threshold layer_decay
learning_rate log_every loss loss_scale loss_scale_interval max_rotation max_shift max_skips
max_zoom mean milestone_factor milestones min_learning_rate mix_off_epochs mix_switch mixup mode
model momentum monitor multi_label name nesterov norm norms_every on_bad_sample optimizer out_dir
patience policy policy_magnitude policy_noise policy_ops precision progress repeats reset_head
resume sampling schedule seed smoothing_over split_seed std stem sync_batchnorm
synthetic_classes synthetic_samples threads train_list train_only trust_coefficient val_list
validation_share warmup_epochs weight_decay weights which zero_init_residual
"""


def values(draft):
    return {name: value.value for name, value in draft.values.items()}


def another(declared):
    """A value of a setting that is not its default, and that its own bounds allow."""
    default = declared.default
    if declared.choices:
        return next(choice for choice in declared.choices if choice not in (default, "own"))
    if isinstance(default, tuple):
        return (0.5,)
    if isinstance(default, str):
        return "x"
    if isinstance(default, float):
        return default / 2 or 0.25
    return not default if isinstance(default, bool) else default + 1


@pytest.mark.parametrize("name", RECIPES)
def test_without_flags_a_recipe_stays_as_it_is(name):
    base = draft_of(RECIPES[name], RunOptions())
    resolved = base.resolve({})
    assert (resolved.values, resolved.drop_notes, resolved.faults) == (base.values, (), ())


@pytest.mark.parametrize("recipe", RECIPES)
def test_flags_have_an_effect_or_are_errors(recipe):
    base = draft_of(RECIPES[recipe], RunOptions())
    for name, declared in DECLARED.items():
        given = {name: another(declared)}
        merged = base.resolve(given)
        assert values(merged)[name] == given[name]
        if not merged.faults:
            again = draft_of(Recipe.from_draft(merged), RunOptions.from_draft(merged)).resolve(
                given
            )
            assert (values(again), again.drop_notes, again.faults) == (values(merged), (), ())


@pytest.mark.parametrize("recipe", RECIPES)
def test_resolving_twice_is_resolving_once(recipe):
    base = draft_of(RECIPES[recipe], RunOptions(check_files="yes"))
    for given in (
        {"dataset": "digits"},
        {"dataset": "imagefolder", "multi_label": True},
        {"optimizer": "lion"},
    ):
        merged = base.resolve(given)
        for again in (merged.resolve({}), merged.resolve(given)):
            assert (values(again), again.faults) == (values(merged), ())


def test_numbers_of_numpy_and_paths_are_accepted():
    recipe = Recipe(epochs=np.int64(3), learning_rate=np.float32(0.5), mean=(np.float32(0.5), 1, 1))
    assert (recipe.epochs, recipe.learning_rate, recipe.mean) == (3, 0.5, (0.5, 1.0, 1.0))
    assert (type(recipe.epochs), type(recipe.learning_rate)) == (int, float)
    assert Recipe(flip=np.True_).flip is True
    assert RunOptions(check_files=np.True_).check_files == "yes"
    assert RunOptions(out_dir=Path("runs") / "mine").out_dir == "runs/mine"
    with pytest.raises(ValueError, match="epochs: True is not a whole number"):
        Recipe(epochs=True)
    with pytest.raises(ValueError, match=r"mean: array\(.* is not a list of numbers"):
        recipe.changed(mean=np.full(3, 0.5))


def test_flags_are_those_of_the_list():
    assert sorted(DECLARED) == FLAGS.split()


def test_a_subclass_cannot_change_a_default():
    with pytest.raises(
        TypeError, match=r"Mine.epochs: .* a function that returns Recipe\(epochs=5\)"
    ):

        class Mine(Recipe):
            epochs: int = 5
