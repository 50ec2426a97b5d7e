"""MindSpore's own optimizers as functions of the gradients of a net: their order, their groups, their state."""

import mindspore
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from resnet_fn.parity.mindspore_side.optimizer import of_mindspore, optimizer_state
from resnet_fn.parity.mindspore_side.parameters import parameters_by_path

pytestmark = pytest.mark.usefixtures("device")


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Dense(3, 3, has_bias=False), nn.Dense(3, 3, has_bias=False)


def groups(net, **options):
    """The second layer first."""
    return [{"params": net.b.trainable_params(), **options}, {"params": net.a.trainable_params()}]


def updated(net, optimizer):
    """How much the weights change by gradients of 1 (a) and 2 (b), learning rate 0.5, compiled; and the state."""
    weights = {path: parameter for path, parameter in parameters_by_path(net).items() if parameter.requires_grad}
    start = {path: parameter.asnumpy().copy() for path, parameter in weights.items()}
    own = of_mindspore(optimizer, net)
    gradients = tuple(ops.ones_like(parameter) * (index + 1) for index, parameter in enumerate(weights.values()))
    mindspore.jit(own.update)(gradients, Tensor(0.5, mindspore.float32))
    changes = {path: parameter.asnumpy() - start[path] for path, parameter in weights.items()}
    return changes, optimizer_state(own, weights)


@pytest.mark.parametrize("make", [lambda g: nn.Momentum(g, 0.1, 0.9), lambda g: nn.SGD(g, 0.1, 0.9)])
def test_each_gradient_goes_to_its_own_weight_whatever_the_order_of_groups(make):
    net = Net()
    changes, state = updated(net, make(groups(net)))
    np.testing.assert_allclose(changes["a.weight"], -0.5, rtol=1e-6)
    np.testing.assert_allclose(changes["b.weight"], -1.0, rtol=1e-6)
    assert list(state) == ["momentum"]
    assert {name: float(array.mean()) for name, array in state["momentum"].items()} == {"a.weight": 1, "b.weight": 2}


def test_a_group_keeps_its_share_of_the_learning_rate():
    net = Net()
    changes, _ = updated(net, nn.Momentum(groups(net, lr=0.025), 0.1, 0.9))
    np.testing.assert_allclose(changes["a.weight"], -0.5, rtol=1e-6)
    np.testing.assert_allclose(changes["b.weight"], -1.0 / 4, rtol=1e-6)


@pytest.mark.parametrize("class_", [nn.Adam, nn.AdamWeightDecay])
def test_moments_are_called_as_ours(class_):
    net = Net()
    _, state = updated(net, class_(groups(net), 0.1))
    assert sorted(state) == ["momentum", "variance"]
    np.testing.assert_allclose(state["momentum"]["b.weight"], 0.2, rtol=1e-5)
    np.testing.assert_allclose(state["variance"]["b.weight"], 0.004, rtol=1e-4)


def test_what_cannot_be_used_is_refused():
    net, other = Net(), Net()
    with pytest.raises(ValueError, match="optimizer: Momentum has a learning rate for each step of its own"):
        of_mindspore(nn.Momentum(net.trainable_params(), nn.ExponentialDecayLR(0.1, 0.9, 4), 0.9), net)
    with pytest.raises(ValueError, match=r"optimizer: Momentum updates .*weight, which the net does not train"):
        of_mindspore(nn.Momentum(other.trainable_params(), 0.1, 0.9), net)
