"""What fails while a cause is sought costs the hint, not the verdict: each search that crashed on a real port."""

from typing import Any

import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from resnet_fn.parity import causes
from resnet_fn.parity.layers.layer import Layer
from resnet_fn.parity.notes import settings_notes
from resnet_fn.parity.origins import added_causes, attempt
from resnet_fn.parity.stages import Stage
from resnet_fn.update.optimizer import momentum_sgd
from resnet_fn.update.state import Optimizer
from small_nets import draw, labels, ladder_of, ours, t, theirs, torch

pytestmark = pytest.mark.usefixtures("device")


class Broken:
    """A recording of which nothing can be read."""

    def __getattr__(self, name: str) -> Any:
        raise ZeroDivisionError(name)


@pytest.mark.parametrize("stage", causes.STAGE_CAUSES)
def test_each_search_at_a_stage_may_fail(stage):
    case = causes.StageCase(Stage(stage), Broken(), Broken(), Broken(), Broken())
    hints = causes.explain(case)
    assert len(hints) == 1 + len(causes.STAGE_CAUSES[stage])  # and the search
    assert all("Error" in hint for hint in hints)


def test_what_a_layer_has_added_may_fail():
    (hint,) = attempt(added_causes, *[Broken()] * 5)
    assert "Error" in hint


def test_a_comparison_of_settings_may_fail():
    """A layer of another version of the framework, whose momentum is a word."""
    sides = [
        Layer("norm", 0, "norm", "BatchNorm2d", {"momentum": momentum}, np.ones((1, 1, 4, 4)), None, (), True)
        for momentum in (0.9, "small")
    ]
    (note,) = settings_notes(*([side] for side in sides), {"norm": "norm"})
    assert note.startswith("norm: ")
    assert "Error" in note


def climb(net: nn.Cell, module: Any, inputs: np.ndarray, **options: Any) -> Any:
    batches = [(inputs, labels(len(inputs)))] * 2
    return ladder_of(net, module, batches, quick=True, mode="pynative", **options)


def with_tanh(self: Any, x: Tensor) -> Tensor:
    return self.head(ops.tanh(self.fc(x)))


def test_a_bias_is_tried_as_a_source():
    """Another function between two dense layers: the last one's bias is tried as a factor of its weight."""
    module = theirs(lambda self, x: self.head(torch.relu(self.fc(x))), fc=t.Linear(8, 8))
    ladder = climb(ours(with_tanh, fc=nn.Dense(8, 8)), module, draw(6, 8))
    assert (ladder.first_stage.name, ladder.first_layer.name) == ("eval forward", "head")
    assert not any("Error" in hint for hint in ladder.first_layer.hints)


def forgets_the_variance(net: nn.Cell) -> Optimizer:
    """Adam whose variance stays zero."""
    weights = tuple(net.trainable_params())

    def update(gradients: Any, learning_rate: Tensor) -> None:
        for index in range(len(weights)):
            ops.assign(weights[index], weights[index] - learning_rate * gradients[index])

    return Optimizer((), update)


def test_an_optimizer_of_which_no_way_divides_by_zero():
    """With β2 = 0 in the reference, a way of it has β2 = 1, and 1 − β^t is 0."""
    module = theirs(lambda self, x: self.head(torch.tanh(self.fc(x))), fc=t.Linear(8, 8))
    net = ours(with_tanh, fc=nn.Dense(8, 8))
    adam = lambda one: torch.optim.Adam(one.parameters(), 0.01, (0.9, 0.0))  # noqa: E731
    ladder = climb(net, module, draw(6, 8), optimizer=forgets_the_variance(net), reference_optimizer=adam)
    assert ladder.first_stage.name == "optimizer alone"
    assert not any("Error" in hint for hint in ladder.first_stage.hints)


def test_a_third_of_an_array_that_differs_is_explained():
    """`qkv.bias part 1 of 3` is no name of an array: the gradient of the keys' bias is zero except for rounding."""

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.head(((q @ k.transpose(1, 2)).softmax(-1) @ v).mean(1))

    def construct(self, x):
        q, k, v = ops.split(self.qkv(x), 8, 2)
        return self.head(ops.bmm(ops.softmax(ops.bmm(q, k.swapaxes(1, 2)), -1), v).mean(1))

    net, module = ours(construct, qkv=nn.Dense(8, 24)), theirs(forward, qkv=t.Linear(8, 24))
    everything = momentum_sgd([(parameter, 0.1) for parameter in net.trainable_params()], 0.9)
    plain = lambda module: torch.optim.SGD(module.parameters(), 0.02, 0.9)  # noqa: E731
    ladder = climb(net, module, draw(4, 5, 8), optimizer=everything, reference_optimizer=plain)
    assert ladder.first_stage.name == "optimizer alone"
    assert any(hint.startswith("weight decay: 0.1 here, 0 in the reference") for hint in ladder.first_stage.hints)
