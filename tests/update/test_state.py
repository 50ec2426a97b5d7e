"""An update's state: its names, BatchNorm's statistics, the weights' moving average and its equation."""

import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from resnet_fn.config.recipe import Recipe
from resnet_fn.evaluation.eval_step import make_eval_step
from resnet_fn.models import create_model
from resnet_fn.update.average import averaged, make_average, moving_average
from resnet_fn.update.loss_scale import DynamicLossScaler
from resnet_fn.update.optimizer import make_optimizer, momentum_sgd
from resnet_fn.update.state import make_state

pytestmark = pytest.mark.usefixtures("device")

RECIPE = Recipe(model="resnet8")


def names(parameters):
    return [parameter.name for parameter in parameters]


def test_the_state_is_all_that_an_update_changes():
    net = create_model("resnet8", num_classes=3)
    average = make_average(net, 0.5, 3, 0.5, 9.0)
    assert (average.every, average.start, average.count.asnumpy()) == (3, 4, 0)
    state = make_state(net, make_optimizer(RECIPE, net), DynamicLossScaler(8.0), average)
    weights = names(net.get_parameters())
    assert names(state.weights) == weights
    assert names(state.trained) == [name for name in weights if "moving" not in name]
    assert names(state.statistics) == [name for name in weights if "moving" in name]
    assert names(state.training) == [
        *(f"momentum.{parameter.name}" for parameter in state.trained),
        *("scaler.scale", "scaler.good_updates", "scaler.skipped", "scaler.skipped_in_row"),
        *(f"ema.{name}" for name in weights),
        "ema_updates",
    ]
    plain = make_state(net, momentum_sgd([]))
    assert (plain.average, make_average(net, 0.0, 3, 0.5, 9.0)) == (None, None)
    assert [float(scalar.asnumpy()) for scalar in plain.training] == [1.0, 0.0, 0.0, 0.0]


def test_evaluation_sees_the_averages_and_training_gets_its_own_bits_back():
    net = nn.Dense(4, 3)
    average, evaluate = moving_average(net.get_parameters(), 0.5), make_eval_step(net)
    for parameter in average.averages:
        ops.assign(parameter, parameter + 0.5)
    images = Tensor(np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32))
    labels = Tensor(np.arange(6, dtype=np.int32) % 3)
    before, bits = evaluate(images, labels).loss.asnumpy(), [p.asnumpy().tobytes() for p in net.get_parameters()]
    inside = []

    def evaluate_and_fail():
        with averaged(average):
            inside.append(evaluate(images, labels).loss.asnumpy())  # as compiled before
            for parameter, mean in zip(average.followed, average.averages, strict=True):
                assert (parameter.asnumpy() == mean.asnumpy()).all()
            raise KeyError

    with pytest.raises(KeyError):
        evaluate_and_fail()
    assert (inside[0] != before).any()
    assert [p.asnumpy().tobytes() for p in net.get_parameters()] == bits
    assert (evaluate(images, labels).loss.asnumpy() == before).all()
    with averaged(None):
        assert [p.asnumpy().tobytes() for p in net.get_parameters()] == bits
