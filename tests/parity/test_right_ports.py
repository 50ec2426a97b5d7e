"""Right ports of what real nets contain: each was accused, rejected or crashed before, and agrees."""

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.parity.ladder import Ladder
from resnet_fn.parity.replay import compare_step
from resnet_fn.parity.report import table
from resnet_fn.parity.trace import Batch
from resnet_fn.recipes import recipe
from resnet_fn.update.optimizer import momentum_sgd

torch = pytest.importorskip("torch", reason="the ladder compares with torch: pip install torch")
t, F = torch.nn, torch.nn.functional
pytestmark = pytest.mark.usefixtures("device")

SGD = dataclasses.replace(recipe("digits"), clip_norm=0.0, learning_rate=0.02)
ADAMW = dataclasses.replace(SGD, optimizer="adamw", nesterov=False, learning_rate=1e-3, weight_decay=0.05)
RNG = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def classes(count: int, kinds: int = 3) -> np.ndarray:
    return RNG.integers(0, kinds, count).astype(np.int32)


def ladder_of(net: nn.Cell, module: Any, batches: Sequence[Batch], use: Any = SGD, **options: Any) -> Ladder:
    return compare_step(net, module, batches, use, **{"initialisation": False, **options})


def agrees(*arguments: Any, **options: Any) -> Ladder:
    ladder = ladder_of(*arguments, **options)
    assert ladder.agrees, table(ladder)
    return ladder


def vectors(updates: int = 2) -> list[Batch]:
    return [(draw(6, 8), classes(6)) for _ in range(updates)]


class Theirs(t.Module):
    """Layers, a function of what they give, and a dense layer."""

    def __init__(self, *layers: Any, width: int = 8, classes: int = 3) -> None:
        super().__init__()
        self.body, self.head = t.Sequential(*layers), t.Linear(width, classes)

    def forward(self, x: Any) -> Any:
        return self.head(self.body(x))


class Ours(nn.Cell):
    def __init__(self, *layers: nn.Cell, width: int = 8, classes: int = 3) -> None:
        super().__init__()
        self.body, self.head = nn.SequentialCell(*layers), nn.Dense(width, classes)

    def construct(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class Attention(t.Module):
    """Small weights: the gradient of the keys' bias is rounding of 1e-10, its square under Adam below float32's."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.head = (*(t.Linear(8, 8) for _ in range(3)), t.Linear(8, 3))
        for parameter in self.parameters():
            t.init.normal_(parameter, std=0.01)

    def forward(self, x: Any) -> Any:
        return self.head(((self.q(x) @ self.k(x).transpose(1, 2)).softmax(-1) @ self.v(x)).mean(1))


class PortedAttention(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.head = (*(nn.Dense(8, 8) for _ in range(3)), nn.Dense(8, 3))

    def construct(self, x: Tensor) -> Tensor:
        scores = ops.softmax(ops.bmm(self.q(x), self.k(x).swapaxes(1, 2)), -1)
        return self.head(ops.bmm(scores, self.v(x)).mean(1))


def test_a_key_bias_under_adam():
    """Its variance is 1e-30, whose square is 0 in float32."""
    agrees(PortedAttention(), Attention(), [(1e-2 * draw(4, 5, 8), classes(4)) for _ in range(2)], ADAMW)


class Rounded(nn.Cell):
    """Another kernel: its gradient is 2e-5 off, within the tolerance of gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.off = Tensor(np.where(np.arange(8) % 2, 2e-5, -2e-5).astype(np.float32))

    def construct(self, x: Tensor) -> Tensor:
        return x + (x * self.off - ops.stop_gradient(x * self.off))


def zero_bias(module: Any) -> Any:
    t.init.zeros_(module.body[0].bias)
    return module


def test_a_bias_that_begins_at_zero():
    """After the first update it is its change: 2e-5 off, as the gradient may be."""
    agrees(Ours(nn.Dense(8, 8), Rounded()), zero_bias(Theirs(t.Linear(8, 8), t.Identity())), vectors(5))


class Noisy(nn.Cell):
    """A dense layer whose weight's gradient is off by 3e-5 of its size: some elements are smaller than that."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = (Parameter(Tensor(np.ones(shape, np.float32))) for shape in ((8, 64), (8,)))
        self.noise = Tensor(1e-5 * np.random.default_rng(1).normal(size=(8, 64)).astype(np.float32))

    def construct(self, x: Tensor) -> Tensor:
        extra = (self.weight * self.noise).sum()
        return ops.matmul(x, self.weight.T) + self.bias + (extra - ops.stop_gradient(extra))


def test_elements_whose_gradient_is_rounding_under_adam():
    """Adam makes a change of the learning rate's size of each, whatever its sign."""
    sizes = np.where(np.arange(64) % 8, 1, 1e-6).astype(np.float32)
    batches = [(draw(6, 64) * sizes, classes(6)) for _ in range(3)]
    agrees(Ours(Noisy()), Theirs(t.Linear(64, 8)), batches, ADAMW)


class Unused(Theirs):
    """A mask token and a pooler that no output depends on."""

    def __init__(self) -> None:
        super().__init__(t.Linear(8, 8), t.Sigmoid())
        self.token, self.pooler = t.Parameter(torch.randn(8)), t.Linear(8, 8)


class PortedUnused(Ours):
    def __init__(self) -> None:
        super().__init__(nn.Dense(8, 8), nn.Sigmoid())
        self.token, self.pooler = Parameter(Tensor(np.ones(8, np.float32))), nn.Dense(8, 8)


@pytest.mark.parametrize("use", [SGD, ADAMW], ids=["SGD", "AdamW"])
def test_parameters_that_no_side_uses(use):
    """torch gives them neither state nor weight decay; a sentence says so."""
    ladder = agrees(PortedUnused(), Unused(), vectors(5), dataclasses.replace(use, decay_all=True))
    (line,) = [line for line in ladder.changed if "token" in line]
    assert "pooler.weight" in line
    assert "weight decay" in line


def test_why_a_stage_failed_is_printed():
    """An optimizer of one's own has a momentum for one of four parameters only."""
    net = PortedUnused()
    optimizer = momentum_sgd([(parameter, 0.0) for parameter in net.trainable_params()], 0.9)
    some = optimizer._replace(state=tuple(one for one in optimizer.state if "head.weight" in one.name))
    ladder = ladder_of(net, Unused(), vectors(), optimizer=some)
    assert ladder.first_stage.name == "momentum after update 1"
    text = table(ladder)
    assert "body.0.weight" in text[text.index("first stage that differs") :]
    assert "in the reference only" in text


class Output(collections.OrderedDict):
    """As the outputs of transformers: a dict with attributes."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


class Cache:
    """Keys and values in an object of its own."""


class Language(Theirs):
    def forward(self, x: Any) -> Any:
        hidden = self.body(x)
        return Output(logits=self.head(hidden), past_key_values=Cache(), hidden_states=(x, hidden))


class PortedLanguage(Ours):
    """A tuple, keys and values as tensors."""

    def construct(self, x: Tensor) -> Any:
        hidden = self.body(x)
        return self.head(hidden), (hidden[:, :4], hidden[:, 4:]), (x, hidden)


def test_a_dict_of_outputs_against_a_tuple():
    """Without a loss: the recipe's, of `logits`. Outputs are paired by order and shape; what we have more is named."""
    ladder = agrees(PortedLanguage(nn.Dense(8, 8), nn.Sigmoid()), Language(t.Linear(8, 8), t.Sigmoid()), vectors())
    stages = {stage.name: stage for stage in ladder.stages}
    assert len(stages["eval forward"].differences) == len(stages["train forward"].differences) == 3
    assert "logits 1 0" in stages["eval forward"].note


class Boxes(Theirs):
    def forward(self, x: Any) -> Any:
        return Output(boxes=super().forward(x), scores=x)


def test_outputs_without_logits_need_a_loss():
    with pytest.raises(ValueError, match=r"boxes.*--loss"):
        ladder_of(Ours(nn.Sigmoid()), Boxes(t.Sigmoid()), vectors())


class Named(Theirs):
    def forward(self, ids: Any, mask: Any = None, types: Any = None, scale: Any = 0.5) -> Any:
        x = ids if types is None else ids + types
        return self.head(self.body(scale * x))


class PortedNamed(Ours):
    def construct(self, ids: Tensor, mask: Any = None, types: Any = None, scale: float = 0.5) -> Tensor:
        x = ids if types is None else ids + types
        return self.head(self.body(scale * x))


def test_named_inputs_are_no_prefix():
    batches = [({"types": draw(6, 8), "ids": draw(6, 8)}, classes(6)) for _ in range(2)]
    agrees(PortedNamed(nn.Sigmoid()), Named(t.Sigmoid()), batches)


def square(outputs: Any, labels: Any) -> Any:
    return (outputs**2).mean()


class Denoiser(Theirs):
    """The sequence before the batch, a number for the time step, and no labels."""

    def forward(self, x: Any, time: Any) -> Any:
        return self.head(self.body(x * time).mean(0))


class PortedDenoiser(Ours):
    def construct(self, x: Tensor, time: Tensor) -> Tensor:
        return self.head(self.body(x * time).mean(0))


def test_sequence_first_a_scalar_and_no_labels():
    batches = [((draw(5, 4, 8), np.array(0.5, np.float32)), None) for _ in range(2)]
    agrees(PortedDenoiser(nn.Sigmoid()), Denoiser(t.Sigmoid()), batches, loss=square, reference_loss=square)


class Graph(Theirs):
    """Nodes and edges: of other numbers."""

    def forward(self, x: Any, edges: Any) -> Any:
        return self.head(self.body(x + torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])))


class PortedGraph(Ours):
    def construct(self, x: Tensor, edges: Tensor) -> Tensor:
        return self.head(self.body(x + ops.index_add(ops.zeros_like(x), edges[1], x[edges[0]], 0)))


def test_graphs():
    batches = [((draw(5, 8), RNG.integers(0, 5, (2, 7)).astype(np.int32)), classes(5)) for _ in range(2)]
    agrees(PortedGraph(nn.Sigmoid()), Graph(t.Sigmoid()), batches)


def ordinal(module: Any) -> Any:
    """K levels passed: labels are 0 … K."""

    def loss(logits: Any, labels: Any) -> Any:
        levels = module.arange(logits.shape[1]) < labels[:, None]
        levels = levels.float()
        return (logits.sigmoid() - levels).pow(2).mean()

    return loss


@pytest.mark.parametrize("outputs", [1, 3], ids=["one logit", "K + 1 levels"])
def test_labels_that_are_no_class(outputs):
    batches = [(draw(6, 8), classes(6, outputs + 1)) for _ in range(2)]
    batches[0][1][0] = outputs
    losses = {"loss": ordinal(ops), "reference_loss": ordinal(torch)}
    agrees(Ours(nn.Sigmoid(), classes=outputs), Theirs(t.Sigmoid(), classes=outputs), batches, **losses)


def test_labels_that_do_not_fit_are_named():
    batches = [(draw(6, 8), classes(5))] * 2
    with pytest.raises(ValueError, match=r"\[6, 3\].*\[5\].*--loss"):
        ladder_of(Ours(nn.Sigmoid()), Theirs(t.Sigmoid()), batches)


def test_one_number_is_no_constant():
    """The bias of Linear(8, 1), whose number is drawn; MindSpore's Dense draws it likewise."""
    losses = {"loss": ordinal(ops), "reference_loss": ordinal(torch)}
    batches = [(draw(6, 8), classes(6, 2)) for _ in range(2)]
    agrees(Ours(nn.Sigmoid(), classes=1), Theirs(t.Sigmoid(), classes=1), batches, initialisation=True, **losses)


def test_one_number_that_is_a_constant_on_one_side():
    losses = {"loss": ordinal(ops), "reference_loss": ordinal(torch)}
    net = Ours(nn.Sigmoid(), classes=1)
    ops.assign(net.head.bias, ops.zeros_like(net.head.bias))
    batches = [(draw(6, 8), classes(6, 2)) for _ in range(2)]
    ladder = ladder_of(net, Theirs(t.Sigmoid(), classes=1), batches, initialisation=True, **losses)
    assert ladder.first_stage.name == "initialisation"
