"""Learning rates of each schedule, by its formula."""

import math

import pytest

from resnet_fn.config.recipe import Recipe
from resnet_fn.update.schedule import check_lengths, cosine_warmup, make_schedule


def test_cosine_has_its_values_at_the_corners():
    def rate(step):
        return cosine_warmup(step, total=100, warmup=10, peak=0.4, floor=0.1)

    assert rate(0) == pytest.approx(0.04)  # peak · 1/10: the first update learns
    assert rate(4) == pytest.approx(0.2)
    assert rate(9) == rate(10) == 0.4
    assert rate(55) == pytest.approx(0.25)  # half-way: the mean of peak and floor
    assert rate(99) == pytest.approx(0.1 + 0.3 * (1 + math.cos(math.pi * 89 / 90)) / 2)
    assert rate(100) == rate(1000) == 0.1
    assert cosine_warmup(0, total=5, warmup=0, peak=0.4) == 0.4
    # as long as the run
    assert [cosine_warmup(step, 4, 4, 1.0) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 0.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, 10, 0, 0.1), "step: -1 is negative"),
        ((0, 10, 11, 0.1), "warmup: 11 updates do not fit into a run of 10 updates; give 0 to 10"),
        ((0, 10, 0, 0.1, 0.2), "floor: 0.2 is above the peak 0.1"),
    ],
)
def test_impossible_schedules_are_rejected(arguments, message):
    with pytest.raises(ValueError, match=message):
        cosine_warmup(*arguments)


def test_linear_step_and_constant_have_their_values():
    """Ten updates an epoch, or one: epochs become updates."""
    linear = make_schedule(
        Recipe(schedule="linear", epochs=1, learning_rate=1.0, min_learning_rate=0.5),
        updates_per_epoch=10,
    )
    assert [linear(0), linear(5), linear(10), linear(11)] == [1.0, 0.75, 0.5, 0.5]
    steps = make_schedule(
        Recipe(schedule="step", epochs=90, learning_rate=0.1, milestones=(30.0, 60.0)), 1
    )
    assert [steps(29), steps(30), steps(60)] == pytest.approx([0.1, 0.01, 0.001])
    constant = make_schedule(
        Recipe(schedule="constant", epochs=9, warmup_epochs=2.0, learning_rate=0.3), 1
    )
    assert [constant(0), constant(1), constant(8)] == [0.15, 0.3, 0.3]


def test_a_whole_recipe_fits_into_a_few_updates():
    recipe = Recipe(schedule="cosine", epochs=90, warmup_epochs=30.0, learning_rate=0.4)
    rates = [make_schedule(recipe, 6 / 90)(update) for update in range(6)]
    assert rates == [cosine_warmup(update, total=6, warmup=2, peak=0.4) for update in range(6)]


@pytest.mark.parametrize("name", ["warmup_epochs", "ema_start"])
def test_chosen_lengths_below_half_an_update_are_errors(name, raises_line, says):
    recipe = Recipe(ema=0.9, **{name: 0.05})  # of 10 updates an epoch: half an update
    assert check_lengths(recipe, 15) == []
    (note,) = check_lengths(recipe, 10)
    says(note, f"{name} 0.05", "no effect", "not more than half an update, of 10 an epoch")
    with raises_line(f"{name}: 0.05", "of 10 an epoch", "give 0.1 or more"):
        check_lengths(recipe, 10, chosen=(name,))
