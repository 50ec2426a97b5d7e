"""The moving average's warm-up, and the line about a decay that is too large for a run."""

import numpy as np
import pytest
from mindspore import Parameter, Tensor, jit, nn, ops

from resnet_fn.config.recipe import Recipe
from resnet_fn.update.average import (
    describe_average,
    make_average,
    move_average,
    moving_average,
)

pytestmark = pytest.mark.usefixtures("device")


@pytest.mark.parametrize(
    ("decay", "every", "start"), [(0.8, 1, 0), (0.999, 3, 0), (0.9, 2, 3), (0.05, 1, 2)]
)
def test_the_average_warms_up_to_its_decay(decay, every, start):
    """After n moves, ema ← d · ema + (1 − d) · value with d = min(decay, (1 + n) / (10 + n))."""
    weight = Parameter(Tensor(np.zeros(3, np.float32)), name="w")
    averages, *arguments = moving_average([weight], decay, every, start, warmup=True)

    @jit
    def move():
        return move_average(averages, *arguments)

    expected = np.zeros(3)
    moves = 0
    for update, value in enumerate(np.random.default_rng(0).normal(size=(40, 3)), 1):
        ops.assign(weight, Tensor(value.astype(np.float32)))
        move()
        if update <= start:
            expected = value
        elif update % every == 0:
            now = min(decay, (1 + moves) / (10 + moves))
            expected = now * expected + (1 - now) * value
            moves = moves + 1
        np.testing.assert_allclose(averages[0].asnumpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("warmup", [True, False])
def test_an_average_follows_its_recipe(warmup):
    recipe = Recipe(ema=0.75, ema_every=2, ema_start=1.5, ema_warmup=warmup)
    average = make_average(nn.Dense(2, 2), recipe, 10.0)
    assert (average.every, average.start, average.warmup) == (2, 15, warmup)
    assert make_average(nn.Dense(2, 2), Recipe(), 10.0) is None


@pytest.mark.parametrize(
    ("decay", "every", "start", "warmup", "parts"),
    [
        (0.97, 1, 0, False, None),  # 0.97^110 = 0.035
        (0.99, 1, 0, False, "warning: ema 0.99: |33.1% |110 moves|give --ema-warmup"),
        # and not --ema 0, without an average
        (0.999, 100, 0, False, "warning: ema 0.999: |after all 1 moves; give --ema-warmup"),
        (0.97, 1, 0, True, None),
        (0.9999, 1, 0, True, "ema 0.9999 |110 moves|decay 0.924"),  # 110 / 119
        (0.5, 200, 105, True, "warning: ema_every 200: |never|110 updates"),
        (0.9, 20, 105, False, "warning: ema_start, update 105: |never|110 updates"),
    ],
)
def test_a_decay_the_run_cannot_reach_is_reported(decay, every, start, warmup, parts, says):
    weights = [Parameter(Tensor(np.float32(1)), name="w")]
    average = moving_average(weights, decay, every, start, warmup)
    line = describe_average(average, decay, 110)
    assert bool(line) == bool(parts)
    says(line, *(parts or "").split("|"))
