"""Every layer is recorded in the order in which it runs, and the net is left as it was."""

import numpy as np
import pytest
from mindspore import nn

from resnet_fn.parity.record.layers import recorded_layers
from resnet_fn.parity.record.mindspore_layers import layers_of
from resnet_fn.parity.trace.layer import fingerprint

pytestmark = pytest.mark.usefixtures("device")

IMAGES = np.random.default_rng(0).normal(size=(4, 3, 6, 6)).astype(np.float32)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.body = nn.SequentialCell([nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)])
        self.relu = nn.ReLU()
        self.fc = nn.Dense(4, 2)

    def construct(self, x):
        return self.fc(self.relu(self.relu(self.body(x)) - 0.1).mean((2, 3)))


@pytest.mark.parametrize("train", [False, True])
def test_layers_of_a_cell_are_recorded_in_order(train):
    net = Net().set_train(not train)
    # a layer of two calls is listed once
    assert [name for name, _ in recorded_layers(net)] == ["body.0", "body.1", "relu", "fc"]
    before = {name: parameter.asnumpy().copy() for name, parameter in net.parameters_and_names()}
    layers = layers_of(net, IMAGES, train)
    for name, parameter in net.parameters_and_names():
        assert parameter.asnumpy().tobytes() == before[name].tobytes(), name
    assert [(layer.title, layer.kind) for layer in layers] == [
        ("body.0", "conv"),
        ("body.1", "norm"),
        ("relu", "relu"),
        ("relu (2)", "relu"),
        ("fc", "dense"),
    ]
    conv, norm, first, second, fc = layers
    assert conv.input.tobytes() == IMAGES.astype(np.float64).tobytes()
    assert fingerprint(norm.input) == fingerprint(conv.output)
    assert fingerprint(norm.input) != fingerprint(norm.output)
    names = "moving_mean", "moving_variance", "gamma", "beta"
    assert norm.parameters == tuple((name, (4,)) for name in names)
    # Batch statistics in training, the stored 0 and 1 in evaluation.
    mean, variance = np.zeros((4, 1, 1)), np.ones((4, 1, 1))
    if train:
        mean, variance = (f(conv.output, (0, 2, 3))[:, None, None] for f in (np.mean, np.var))
    expected = (conv.output - mean) / np.sqrt(variance + 1e-5)
    np.testing.assert_allclose(norm.output, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(first.output, np.maximum(norm.output, 0))
    np.testing.assert_allclose(second.input, first.output - 0.1, atol=1e-7)
    np.testing.assert_allclose(fc.input, second.output.mean((2, 3)), rtol=1e-5)
