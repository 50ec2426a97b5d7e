"""The weights' moving average, put in their place for an evaluation.

(The state's names: tests/run/test_build.py.)
"""

import contextlib

import numpy as np
import pytest
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops

from resnet_fn import adamw, fit, make_state
from resnet_fn.evaluation.eval_step import make_eval_step
from resnet_fn.update.average import averaged, moving_average

pytestmark = pytest.mark.usefixtures("device")


def test_evaluation_uses_averages_and_restores_the_weights():
    net = nn.Dense(4, 3)
    average = moving_average(net.get_parameters(), 0.5)
    step = make_eval_step(net)
    for parameter in average.averages:
        ops.assign(parameter, parameter + 0.5)
    images = Tensor(np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32))
    labels = Tensor(np.arange(6, dtype=np.int32) % 3)

    def evaluate():  # as compiled at first
        return step(images, labels).loss.asnumpy().tolist(), bits(net.get_parameters())

    before = evaluate()
    with averaged(None):
        assert evaluate() == before
    with contextlib.suppress(KeyError), averaged(average):
        losses, weights = evaluate()
        raise KeyError
    assert losses != before[0]
    assert weights == bits(average.averages)
    assert evaluate() == before


def bits(parameters):
    return [parameter.asnumpy().tobytes() for parameter in parameters]


class Scaled(nn.Cell):
    """A net whose Parameters have the names that it is given."""

    def __init__(self, *names):
        super().__init__()
        value = np.ones((3, 2), np.float32)
        self.values = ParameterTuple([Parameter(Tensor(value), name=name) for name in names])

    def construct(self, x):
        return sum([ops.matmul(x, value) for value in self.values])


NAMES = ["scaler.scale", "scaler.skipped", "ema_updates", "adam_updates"]


@pytest.mark.parametrize("name", NAMES)
def test_a_parameter_named_like_the_state_is_rejected(name, raises_line):
    net = Scaled(name)
    optimizer = adamw(net.trainable_params())
    average = moving_average(net.get_parameters(), 0.5)
    with raises_line(f"net: the Parameter name {name} is also the name", "; rename it"):
        make_state(net, optimizer, average=average)


@pytest.mark.parametrize("names", [("sum.means", "vector.0"), ("sum.0", "momentum.vector.0")])
def test_internal_names_do_not_clash_with_a_nets(names):
    x = np.ones((8, 3), np.float32)
    y = np.arange(8) % 2
    settings = {"accumulate": 2, "epochs": 1, "batch_size": 4}
    result = fit(Scaled(*names), (x, y), (x, y), out_dir="run", progress=False, **settings)
    assert result.updates == 2
