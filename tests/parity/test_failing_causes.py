"""What fails while a cause is sought costs the hint, not the verdict: each search that crashed on a real port."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from resnet_fn.parity import causes
from resnet_fn.parity.ladder import Ladder
from resnet_fn.parity.layers.layer import Layer
from resnet_fn.parity.notes import settings_notes
from resnet_fn.parity.replay import compare_step
from resnet_fn.parity.stages import Stage
from resnet_fn.recipes import recipe
from resnet_fn.update.state import Optimizer

torch = pytest.importorskip("torch", reason="the ladder compares with torch: pip install torch")
t = torch.nn
pytestmark = pytest.mark.usefixtures("device")

RECIPE = dataclasses.replace(recipe("digits"), clip_norm=0.0, label_smoothing=0.0, learning_rate=0.02)
RNG = np.random.default_rng(0)


def ladder_of(net: nn.Cell, module: Any, *inputs: np.ndarray, optimizer: Any = None, **options: Any) -> Ladder:
    labels = RNG.integers(0, 3, len(inputs[0])).astype(np.int32)
    batches = [(inputs if len(inputs) > 1 else inputs[0], labels)] * 2
    return compare_step(net, module, batches, RECIPE, optimizer=optimizer, initialisation=False, **options)


def draw(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


class Broken:
    """A recording of which nothing can be read."""

    def __getattr__(self, name: str) -> Any:
        raise ZeroDivisionError(name)


@pytest.mark.parametrize("stage", causes.STAGE_CAUSES)
def test_each_search_at_a_stage_may_fail(stage):
    case = causes.StageCase(Stage(stage), Broken(), Broken(), Broken(), Broken())
    hints = causes.explain(case)
    assert len(hints) == 2  # of the search, and of what is computed
    assert all("Error" in hint for hint in hints)


def test_a_comparison_of_settings_may_fail():
    """A layer of another version of the framework, whose momentum is a word."""
    sides = [
        Layer("norm", 0, "norm", "BatchNorm2d", {"momentum": momentum}, np.ones((1, 1, 4, 4)), None, (), True)
        for momentum in (0.9, "small")
    ]
    (note,) = settings_notes(*([side] for side in sides), {"norm": "norm"})
    assert note.startswith("norm: ")
    assert "Error" in note


def theirs(forward: Any, **layers: Any) -> Any:
    net = type("Theirs", (t.Module,), {"forward": forward})()
    for name, layer in layers.items():
        setattr(net, name, layer)
    return net


def ours(construct: Any, **layers: nn.Cell) -> nn.Cell:
    net = type("Ours", (nn.Cell,), {"construct": construct})()
    for name, layer in layers.items():
        setattr(net, name, layer)
    return net


def denses(*names: str, kind: Any = nn.Dense) -> dict[str, Any]:
    return {**{name: kind(8, 8) for name in names}, "head": kind(8, 3)}


def with_tanh(self: Any, x: Tensor) -> Tensor:
    return self.head(ops.tanh(self.fc(x)))


def forgets_the_variance(net: nn.Cell) -> Optimizer:
    """Adam whose variance stays zero."""
    weights = tuple(net.trainable_params())

    def update(gradients: Any, learning_rate: Tensor) -> None:
        for index in range(len(weights)):
            ops.assign(weights[index], weights[index] - learning_rate * gradients[index])

    return Optimizer((), update)


def test_an_optimizer_of_which_no_way_divides_by_zero():
    """With β2 = 0 in the reference, a way of it has β2 = 1, and 1 − β^t is 0."""
    module = theirs(lambda self, x: self.head(torch.tanh(self.fc(x))), **denses("fc", kind=t.Linear))
    net = ours(with_tanh, **denses("fc"))
    adam = lambda one: torch.optim.Adam(one.parameters(), 0.01, (0.9, 0.0))  # noqa: E731
    ladder = ladder_of(net, module, draw(6, 8), optimizer=forgets_the_variance(net), reference_optimizer=adam)
    assert ladder.first_stage.name == "optimizer alone"
    assert not any("Error" in hint for hint in ladder.first_stage.hints)
