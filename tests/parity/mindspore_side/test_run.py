"""What is recorded of the compiled step is the mathematics of a linear net under a quadratic loss."""

import dataclasses

import numpy as np
import pytest
from mindspore import Tensor, nn

from resnet_fn.parity.mindspore_side.parameters import assign, state
from resnet_fn.parity.mindspore_side.run import run_mindspore
from resnet_fn.parity.traces.batches import make_batches
from resnet_fn.parity.traces.trace import Task
from resnet_fn.recipes import recipe
from resnet_fn.update.optimizer import momentum_sgd
from resnet_fn.update.step import make_train_step

pytestmark = pytest.mark.usefixtures("device")

RATES, MOMENTUM, DECAY, CLIP = (0.1, 0.05), 0.9, 0.01, 0.2


class Linear(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(12, 3, has_bias=False)

    def construct(self, x):
        return self.fc(x.reshape((x.shape[0], -1)))


def half_square(logits, labels):
    return (logits * logits).sum(1).mean() / 2


@pytest.mark.parametrize("accumulate", [1, 2])
def test_two_updates(accumulate):
    net, batches = Linear(), make_batches(2, 8, 3, 2, 3)
    optimizer = momentum_sgd([(net.fc.weight, DECAY)], MOMENTUM, False)
    use = dataclasses.replace(recipe("digits"), clip_norm=CLIP)
    task = Task(use, batches, accumulate)
    like = net(Tensor(batches[0][0]))
    found = run_mindspore(net, task, RATES, half_square, optimizer, make_train_step, like)

    weight = found.start["fc.weight"].astype(np.float64)
    np.testing.assert_allclose(
        found.eval_outputs["logits"], batches[0][0].reshape(8, -1) @ weight.T, rtol=1e-5, atol=1e-6
    )
    buffer = np.zeros_like(weight)
    for update, (images, _) in enumerate(batches):
        x = images.reshape(8, -1).astype(np.float64)
        logits = x @ weight.T
        gradient = logits.T @ x / 8
        norm = np.linalg.norm(gradient)
        assert norm > CLIP  # so that clipping shows
        clipped = gradient * CLIP / norm
        buffer = MOMENTUM * buffer + clipped + DECAY * weight
        weight = weight - RATES[update] * buffer
        assert found.losses[update] == pytest.approx((logits**2).sum(1).mean() / 2, rel=1e-5)
        assert found.norms[update] == pytest.approx(norm, rel=1e-5)
        last = logits[-8 // accumulate :]
        np.testing.assert_allclose(found.train_outputs[update]["logits"], last, rtol=1e-4, atol=1e-5)
        if update == 0:
            np.testing.assert_allclose(found.gradients["fc.weight"], gradient, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(found.clipped["fc.weight"], clipped, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(found.state["momentum"]["fc.weight"], buffer, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(found.after[0]["fc.weight"], weight, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.after[-1]["fc.weight"], weight, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(state(net)["fc.weight"], found.after[-1]["fc.weight"])


def test_values_that_are_assigned_are_those_of_a_compiled_net():
    net = Linear()
    assign(net, {"fc.weight": np.eye(3, 12)})
    np.testing.assert_array_equal(state(net)["fc.weight"], np.eye(3, 12, dtype=np.float32))
