"""Learning rates of each schedule, by its formula."""

import math

import pytest

from resnet_fn.config.recipe import Recipe
from resnet_fn.update.schedule import check_lengths, cosine_warmup, make_schedule


def test_cosine_has_its_values_at_the_corners():
    rates = {
        0: 0.04,  # peak · 1/10: the first update learns
        4: 0.2,
        9: 0.4,
        10: 0.4,
        55: 0.25,  # half-way: the mean of peak and floor
        99: 0.1 + 0.3 * (1 + math.cos(math.pi * 89 / 90)) / 2,
        100: 0.1,
        1000: 0.1,
    }
    ours = {step: cosine_warmup(step, 100, warmup=10, peak=0.4, floor=0.1) for step in rates}
    assert ours == pytest.approx(rates)
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


@pytest.mark.parametrize(
    ("schedule", "peak", "settings", "rates"),
    [
        ("linear", 1.0, {"min_learning_rate": 0.5}, {0: 1.0, 45: 0.75, 90: 0.5, 91: 0.5}),
        ("step", 0.1, {"milestones": (3.0, 6.0)}, {29: 0.1, 30: 0.01, 60: 0.001}),
        ("constant", 0.3, {"warmup_epochs": 0.2}, {0: 0.15, 1: 0.3, 80: 0.3}),
    ],
)
def test_linear_step_and_constant_have_their_values(schedule, peak, settings, rates):
    recipe = Recipe(schedule=schedule, epochs=9, learning_rate=peak, **settings)
    rate = make_schedule(recipe, 10)
    assert {step: rate(step) for step in rates} == pytest.approx(rates)


def test_a_whole_recipe_fits_into_a_few_updates():
    recipe = Recipe(schedule="cosine", epochs=90, warmup_epochs=30.0, learning_rate=0.4)
    rates = [make_schedule(recipe, 6 / 90)(update) for update in range(6)]
    assert rates == [cosine_warmup(update, total=6, warmup=2, peak=0.4) for update in range(6)]


@pytest.mark.parametrize("name", ["warmup_epochs", "ema_start"])
def test_demanded_lengths_below_half_an_update_are_errors(name, raises_line, says):
    recipe = Recipe(ema=0.9, **{name: 0.05})  # of 10 updates an epoch: half an update
    assert check_lengths(recipe, 15) == []
    (note,) = check_lengths(recipe, 10)
    says(note, f"{name} 0.05", "no effect", "not more than half an update, of 10 an epoch")
    with raises_line(f"{name}: 0.05", "of 10 an epoch", "give 0.1 or more"):
        check_lengths(recipe, 10, demanded=(name,))
