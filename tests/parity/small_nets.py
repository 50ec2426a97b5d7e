"""Small nets that tests compare: layers in a row before a dense layer, or a function of them, in both frameworks."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn

from resnet_fn.parity.ladder import Ladder
from resnet_fn.parity.replay import compare_step
from resnet_fn.parity.report import table
from resnet_fn.parity.trace import Batch
from resnet_fn.recipes import recipe
from resnet_fn.update.gradients import global_norm

torch = pytest.importorskip("torch", reason="the ladder compares with torch: pip install torch")
t = torch.nn

SGD = dataclasses.replace(recipe("digits"), clip_norm=0.0, label_smoothing=0.0, learning_rate=0.02)
ADAMW = dataclasses.replace(SGD, optimizer="adamw", nesterov=False, learning_rate=1e-3, weight_decay=0.05)


def draw(*shape: int) -> np.ndarray:
    """Numbers from NumPy's generator, which has one seed at the start of each test."""
    return np.random.normal(size=shape).astype(np.float32)


def labels(count: int, kinds: int = 3) -> np.ndarray:
    return np.random.randint(0, kinds, count).astype(np.int32)


def ones(*shape: int) -> Parameter:
    return Parameter(Tensor(np.ones(shape, np.float32)))


class Theirs(t.Module):
    """Layers in a row, or one, and a dense layer; what is spatial, or a sequence, is averaged before it."""

    def __init__(self, *layers: Any, width: int = 8, classes: int = 3) -> None:
        super().__init__()
        self.part = layers[0] if len(layers) == 1 else t.Sequential(*layers)
        self.head = t.Linear(width, classes)

    def forward(self, x: Any) -> Any:
        x = self.part(x)
        return self.head(x if x.ndim == 2 else x.mean((2, 3)) if x.ndim == 4 else x.mean(1))


class Ours(nn.Cell):
    """The same, under the same names."""

    def __init__(self, *layers: nn.Cell, width: int = 8, classes: int = 3) -> None:
        super().__init__()
        self.part = layers[0] if len(layers) == 1 else nn.SequentialCell(*layers)
        self.head = nn.Dense(width, classes)

    def construct(self, x: Tensor) -> Tensor:
        x = self.part(x)
        return self.head(x if x.ndim == 2 else x.mean((2, 3)) if x.ndim == 4 else x.mean(1))


class DropPath(t.Module):
    """As in timm: a sample's whole branch is dropped."""

    def __init__(self, share: float = 0.4) -> None:
        super().__init__()
        self.drop_prob = share

    def forward(self, x: Any) -> Any:
        if not (self.drop_prob and self.training):
            return x
        return x * (torch.rand((len(x), *[1] * (x.ndim - 1))) >= self.drop_prob) / (1 - self.drop_prob)


def module(forward: Callable[..., Any], **parts: Any) -> t.Module:
    """A function as a module, and its parameters and layers."""
    return _with(type("Part", (t.Module,), {"forward": forward})(), parts)


def cell(construct: Callable[..., Any], **parts: Any) -> nn.Cell:
    return _with(type("Part", (nn.Cell,), {"construct": construct})(), parts)


def theirs(forward: Callable[..., Any], *layers: Any, **parts: Any) -> Any:
    """`Theirs` with another function; `parts` are its further parameters and layers, or another `head`."""
    return _with(type("Net", (Theirs,), {"forward": forward})(*layers), parts)


def ours(construct: Callable[..., Any], *layers: nn.Cell, **parts: Any) -> Any:
    return _with(type("Net", (Ours,), {"construct": construct})(*layers), parts)


def _with(net: Any, parts: dict[str, Any]) -> Any:
    for name, part in parts.items():
        setattr(net, name, part)
    return net


def ladder_of(net: nn.Cell, module: Any, batches: Sequence[Batch], use: Any = SGD, **options: Any) -> Ladder:
    """The ladder without initial values."""
    return compare_step(net, module, batches, use, **{"initialisation": False, **options})


def agrees(net: nn.Cell, module: Any, batches: Sequence[Batch], use: Any = SGD, **options: Any) -> Ladder:
    """The ladder of a right port, by default without probes and uncompiled."""
    ladder = ladder_of(net, module, batches, use, **{"quick": True, "mode": "pynative", **options})
    assert ladder.agrees, table(ladder)
    assert not ladder.probed.findings, ladder.probed.lines()
    return ladder


class Result(NamedTuple):
    """What the ladder reads of a step."""

    loss: Tensor
    grad_norm: Tensor


def own_step(
    change: Callable[..., Any], each: Callable[..., Any] = lambda gradients, plan: gradients
) -> Callable[..., Any]:
    """A step as people write it, which changes gradients: of each micro-batch, and their sums before the optimizer."""

    def make_step(net, loss, optimizer, *, plan, **_others):
        differentiate = mindspore.value_and_grad(
            lambda x, y: loss(net(x), y), None, mindspore.ParameterTuple(net.trainable_params())
        )

        def step(inputs, labels, rate):
            net.set_train(True)
            size, value, sums = len(inputs) // plan.micro_batches, 0.0, None
            for x, y in zip(inputs.split(size), labels.split(size), strict=True):
                part, gradients = differentiate(x, y)
                value += part / plan.micro_batches
                gradients = each(gradients, plan)
                sums = gradients if sums is None else [s + g for s, g in zip(sums, gradients, strict=True)]
            gradients = change(net, sums, plan)
            optimizer.update(gradients, rate)
            return Result(value, global_norm(gradients))

        return step

    return make_step


@dataclasses.dataclass(frozen=True)
class Pair:
    """A net and its right port."""

    batch: Callable[[], Batch]
    theirs: Callable[[], Any]
    ours: Callable[[], nn.Cell]
    recipe: Any = SGD
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    optimizer: Callable[[nn.Cell], nn.Optimizer] | None = None
    updates: int = 2

    def climb(self, **options: Any) -> tuple[nn.Cell, Ladder]:
        """The port, and its ladder, which must agree."""
        module, net = self.theirs(), self.ours()
        options |= {"optimizer": self.optimizer(net)} if self.optimizer else {}
        options |= self.options
        batches = [self.batch() for _ in range(self.updates)]
        return net, agrees(net, module, batches, self.recipe, **options)
