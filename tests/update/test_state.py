"""The weights' moving average, put in their place for an evaluation.

(The state's names: tests/run/test_build.py.)
"""

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
    evaluate = make_eval_step(net)
    for parameter in average.averages:
        ops.assign(parameter, parameter + 0.5)
    images = Tensor(np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32))
    labels = Tensor(np.arange(6, dtype=np.int32) % 3)
    before = evaluate(images, labels).loss.asnumpy()
    bits = [p.asnumpy().tobytes() for p in net.get_parameters()]
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
