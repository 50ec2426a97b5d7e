"""An update's state: its names, BatchNorm's statistics, the weights' moving average and its equation."""

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.config.recipe import Recipe
from resnet_fn.evaluation.eval_step import make_eval_step
from resnet_fn.models import create_model
from resnet_fn.models.batchnorm import batchnorm_statistics
from resnet_fn.update.average import averaged, averages_of, make_average, move_average, moving_average
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


def test_frozen_weights_and_frozen_batchnorms_have_no_statistics_that_move_and_no_average():
    net = create_model("resnet8", num_classes=3)
    moving = [name for name in names(net.get_parameters()) if "moving" in name]
    net.conv1.weight.requires_grad = False
    net.bn1.gamma.requires_grad = net.bn1.beta.requires_grad = False
    assert names(batchnorm_statistics(net)) == moving
    net.bn1.use_batch_statistics = False
    assert names(batchnorm_statistics(net)) == [name for name in moving if not name.startswith("bn1.")]
    changing = [name for name in names(net.get_parameters()) if not name.startswith(("conv1.", "bn1."))]
    assert names(make_average(net, 0.5, 3, 0.5, 9.0).followed) == changing


@pytest.mark.parametrize(("every", "start"), [(1, 0), (3, 0), (1, 4), (3, 4)])
def test_the_average_is_its_equation(every, start):
    values = np.random.default_rng(0).normal(size=(12, 5)).astype(np.float32)
    weight = Parameter(Tensor(values[0]), name="weight")
    averages, followed, count, new_weight, every, start = moving_average([weight], 0.9, every, start)

    @mindspore.jit
    def follow(value):
        ops.assign(weight, value)
        return move_average(averages, followed, count, new_weight, every, start)

    expected = values[0].astype(np.float64)
    for number, value in enumerate(values, 1):
        assert follow(Tensor(value)).asnumpy() == count.asnumpy() == number
        if number <= start:
            expected = value.astype(np.float64)
        elif number % every == 0:
            expected = 0.9 * expected + 0.1 * value
        np.testing.assert_allclose(averages[0].asnumpy(), expected, rtol=2e-6, atol=1e-6)
        if number <= start:
            assert averages[0].asnumpy().tobytes() == value.tobytes()
    assert names((*averages, count)) == ["ema.weight", "ema_updates"]


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


def test_the_averages_of_a_checkpoint_go_by_name():
    assert averages_of({"momentum.a": np.zeros(2)}) == {}
    training = {"momentum.a": np.ones(2), "ema.a": np.zeros(2), "ema_updates": np.ones(())}
    assert {name: array.tolist() for name, array in averages_of(training).items()} == {"a": [0, 0]}
