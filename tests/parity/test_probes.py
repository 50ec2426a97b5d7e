"""What the batches do not show: probes of layers and of the net, and lines about what was not exercised."""

import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from resnet_fn.parity.replay import compare_step
from resnet_fn.parity.report import table
from resnet_fn.recipes import recipe

torch = pytest.importorskip("torch", reason="the ladder compares with torch: pip install torch")
t, F = torch.nn, torch.nn.functional
pytestmark = pytest.mark.usefixtures("device")

RNG = np.random.default_rng(0)


class Theirs(t.Module):
    def __init__(self, *layers):
        super().__init__()
        self.body, self.head = t.Sequential(*layers), t.Linear(8, 3)

    def forward(self, x):
        return self.head(self.body(x))


class Ours(nn.Cell):
    def __init__(self, *layers):
        super().__init__()
        self.body, self.head = nn.SequentialCell(*layers), nn.Dense(8, 3)

    def construct(self, x):
        return self.head(self.body(x))


def test_relu():
    x = np.abs(RNG.normal(size=(4, 8))).astype(np.float32)
    ladder = compare_step(Ours(nn.ReLU()), Theirs(t.LeakyReLU(0.1)), [(x, np.array([0, 1, 2, 0], np.int32))], recipe("digits"), initialisation=False)
    print(table(ladder))
    print(ladder.probed)
    assert 0
