"""Inputs of a ReLU that float32 puts on either side of 0 are no fault, and hide none."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mindspore import nn, ops

from resnet_fn.parity.compare import difference
from resnet_fn.parity.ladder import Ladder
from resnet_fn.parity.layers import LayerDifference
from resnet_fn.parity.replay import compare_step
from resnet_fn.parity.report import table
from resnet_fn.parity.ties import tie_width
from resnet_fn.parity.torch_side.relu_ties import flip_ties
from resnet_fn.recipes import recipe

pytestmark = pytest.mark.usefixtures("device")

RECIPE = dataclasses.replace(recipe("digits"), clip_norm=0.0, learning_rate=0.02)

RELUS: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "torch.relu": lambda torch: torch.relu,
    "functional": lambda torch: torch.nn.functional.relu,
    "layer": lambda torch: torch.nn.ReLU(),
    "layer in place": lambda torch: torch.nn.ReLU(inplace=True),
    "method": lambda torch: torch.Tensor.relu,
}


@pytest.mark.parametrize("kind", list(RELUS))
def test_an_input_near_zero_takes_the_other_side(torch, kind):
    relu = RELUS[kind](torch)
    x = torch.tensor([1e-7, -1e-7, 1.0, -1.0], dtype=torch.float64, requires_grad=True)
    with flip_ties(1e-6) as count:
        out = relu(x * 1.0)
        out.sum().backward()
    assert count() == 2
    assert x.grad.tolist() == [0.0, 1.0, 1.0, 0.0]
    assert out.tolist() == [0.0, -1e-7, 1.0, 0.0]
    assert torch.relu(x).tolist() == [1e-7, 0.0, 1.0, 0.0]  # outside, all is as before


def test_a_tie_is_as_wide_as_four_times_the_largest_error_in_training_mode():
    def layer(mode, ours, exact):
        output = difference("x", np.array([ours]), np.array([1.0]), np.array([exact]))
        return LayerDifference(mode, "x", "x", output, None, (), 0)

    assert tie_width([]) == 0
    layers = [layer("eval", 1.5, 1.0), layer("train", 1 + 1e-6, 1.0), layer("train", 1.0, 1 / (1 + 2e-6))]
    assert tie_width(layers) == pytest.approx(4 * 2e-6)


class Ported(nn.Cell):
    """Computes the same but for what float32 cannot hold: it adds 1e-12 to what the ReLU is given."""

    def __init__(self, fault=1.0):
        super().__init__()
        self.first = nn.Dense(8, 8)
        self.last = nn.Dense(8, 3)
        self.fault = fault

    def construct(self, x):
        x = self.first(x.reshape((x.shape[0], -1)))
        # The values are those of x, its gradient is `fault` times as large.
        x = x * self.fault + ops.stop_gradient(x * (1.0 - self.fault))
        return self.last(ops.relu(x + 1e-12))


@pytest.fixture
def climb(torch) -> Callable[[nn.Cell], Ladder]:
    """climb(net): its ladder; half of the ReLU's inputs are 0 to the last bit in PyTorch, half are far from it."""

    class Reference(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(8, 8)
            torch.nn.init.zeros_(self.first.bias)
            self.last = torch.nn.Linear(8, 3)

        def forward(self, x):
            return self.last(torch.relu(self.first(x.flatten(1))))

    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    images = rng.standard_normal((6, 2, 2, 2)).astype(np.float32)
    images[:3] = 0  # these samples' ReLU inputs are exactly 0 there, 1e-12 here
    batches = [(images, rng.integers(0, 3, 6).astype(np.int32)) for _ in range(2)]
    return lambda net: compare_step(net, Reference(), batches, RECIPE, initialisation=False)


def test_sides_that_float32_cannot_decide_are_rounding(climb):
    ladder = climb(Ported())
    assert ladder.agrees, table(ladder)
    assert ladder.ties == 2 * 3 * 8  # updates · samples · units
    assert "float32 cannot say on which side of 0 48 inputs of a ReLU lie" in table(ladder)


def test_a_wrong_gradient_beside_them_is_found(climb):
    ladder = climb(Ported(fault=2.0))
    assert ladder.first_stage is not None
    assert ladder.first_stage.name == "gradients"
    assert ladder.first_gradient.name == "first.weight"  # by a factor of 2; the bias' gradient could be anything
    assert ladder.first_gradient.verdict == "DIFFERS"
