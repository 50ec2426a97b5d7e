"""Small nets that tests compare: layers in a row before a dense layer, or a function of them, in
both frameworks.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.parity.plan import plan_of
from resnet_fn.parity.record.record import record
from resnet_fn.parity.replay import compare_step, replay
from resnet_fn.parity.show.table import table
from resnet_fn.parity.show.titles import title_of_stage
from resnet_fn.parity.trace.source import Recorded, StoredSource
from resnet_fn.parity.trace.tree import Batch
from resnet_fn.recipes import recipe
from resnet_fn.update.gradients import global_norm

torch = pytest.importorskip("torch", reason="the ladder compares with torch: pip install torch")
from resnet_fn.parity.record.torch_side import TorchSide  # noqa: E402 (imports torch)

t = torch.nn

SGD = recipe("digits").changed(clip_norm=0.0, label_smoothing=0.0, learning_rate=0.02)
ADAMW = SGD.changed(optimizer="adamw", nesterov=False, learning_rate=1e-3, weight_decay=0.05)
PADDED: dict[str, Any] = {"pad_mode": "pad", "padding": 1}  # as PyTorch's padding=1


def record_live(*given, probes=True, **options):
    """The reference's trace, and what it answers as long as the module lives."""
    return record(TorchSide(*given, **options), probes=probes)


def record_reference(*given, probes=True, **options):
    """The reference's trace."""
    return record_live(*given, probes=probes, **options).trace


def recording_of(module, batches, loss=None, probes=False):
    """What several ports are compared with, in place of the module."""
    plan = plan_of(SGD, batches, custom_loss=loss is not None)
    return record_live(module, plan, loss, probes=probes)


def traced(module, batches, *given, use=SGD, **options):
    """The reference's trace without probes; `given` are a loss and an optimizer."""
    return record_reference(module, plan_of(use, batches), *given, probes=False, **options)


def stored(trace):
    """A trace as it is read from a folder, without the module."""
    return Recorded(trace, StoredSource(trace))


def draw(*shape):
    """Numbers from NumPy's generator, which has one seed at the start of each test."""
    return np.random.normal(size=shape).astype(np.float32)


def labels(count, kinds=3):
    return np.random.randint(0, kinds, count).astype(np.int32)


def vector():
    return draw(6, 8), labels(6)


def vectors(updates=2):
    return [vector() for _ in range(updates)]


def tokens():
    return [(draw(4, 5, 8), labels(4))] * 2


def images():
    return draw(4, 3, 8, 8), labels(4)


def ones(*shape):
    return Parameter(Tensor(np.ones(shape, np.float32)))


def layer_norm(width=8):
    """With PyTorch's eps."""
    return nn.LayerNorm((width,), epsilon=1e-5)


class Theirs(t.Module):
    """Layers in a row, or one, and a dense layer; what is spatial, or a sequence, is averaged
    before it.
    """

    def __init__(self, *layers, width=8, classes=3):
        super().__init__()
        self.part = layers[0] if len(layers) == 1 else t.Sequential(*layers)
        self.head = t.Linear(width, classes)

    def forward(self, x):
        x = self.part(x)
        return self.head(x if x.ndim == 2 else x.mean((2, 3)) if x.ndim == 4 else x.mean(1))


class Ours(nn.Cell):
    """The same, under the same names."""

    def __init__(self, *layers, width=8, classes=3):
        super().__init__()
        self.part = layers[0] if len(layers) == 1 else nn.SequentialCell(*layers)
        self.head = nn.Dense(width, classes)

    def construct(self, x):
        x = self.part(x)
        return self.head(x if x.ndim == 2 else x.mean((2, 3)) if x.ndim == 4 else x.mean(1))


class Other(nn.Cell):
    """`Ours` under other names."""

    def __init__(self, *layers):
        super().__init__()
        self.layers, self.last = nn.SequentialCell(*layers), nn.Dense(8, 3)

    def construct(self, x):
        x = self.layers(x)
        return self.last(x if x.ndim == 2 else x.mean((2, 3)) if x.ndim == 4 else x.mean(1))


class DropPath(t.Module):
    """As in timm: a sample's whole branch is dropped."""

    def __init__(self, share=0.4):
        super().__init__()
        self.drop_prob = share

    def forward(self, x):
        if not (self.drop_prob and self.training):
            return x
        kept = torch.rand((len(x), *[1] * (x.ndim - 1))) >= self.drop_prob
        return x * kept / (1 - self.drop_prob)


class PortedPath(nn.Cell):
    """Drop-path as in MindCV, a dropout layer inside; perhaps without the factor of what it
    keeps.
    """

    def __init__(self, share, scales=True):
        super().__init__()
        self.keep_prob, self.dropout, self.scales = 1 - share, nn.Dropout(p=share), scales

    def construct(self, x):
        if self.keep_prob == 1.0 or not self.training:
            return x
        kept = x * self.dropout(ops.ones((x.shape[0],) + (1,) * (x.ndim - 1), x.dtype))
        return kept if self.scales else kept * self.keep_prob


def module(forward, **parts):
    """A function as a module, and its parameters and layers."""
    return _with(type("Part", (t.Module,), {"forward": forward})(), parts)


def cell(construct, **parts):
    return _with(type("Ported", (nn.Cell,), {"construct": construct})(), parts)


def theirs(forward, *layers, **parts):
    """`Theirs` with another function; `parts` are its further parameters and layers, or another
    `head`.
    """
    return _with(type("Net", (Theirs,), {"forward": forward})(*layers), parts)


def ours(construct, *layers, **parts):
    return _with(type("Net", (Ours,), {"construct": construct})(*layers), parts)


def theirs_of(forward, **parts):
    """`theirs` with a dense layer, `part`."""
    return theirs(forward, t.Linear(8, 8), **parts)


def ours_of(construct, **parts):
    return ours(construct, nn.Dense(8, 8), **parts)


def custom(class_name, **attributes):
    """A cell whose class has this name, without a function."""
    return _with(type(class_name, (nn.Cell,), {})(), attributes)


def _with(net, parts):
    for name, part in parts.items():
        setattr(net, name, part)
    return net


FILE = """
import numpy as np
{imports}

class Net(nn.{base}):
    def __init__(self):
        super().__init__()
        {layers}

    def {method}(self, x):
        {body}
"""
BATCHES = """
import numpy as np
def batches():
    draw = np.random.default_rng(0)
    return [(draw.normal(size=(4, 8)).astype(np.float32), np.array([0, 1, 2, 0], np.int32))]
"""
FRAMEWORKS = {
    "torch": {
        "imports": "import torch\nfrom torch import nn",
        "base": "Module",
        "method": "forward",
    },
    "mindspore": {
        "imports": "from mindspore import Parameter, Tensor, nn, ops",
        "base": "Cell",
        "method": "construct",
    },
}


def write_net(path, framework, layers, body, imports=""):
    """A file with `Net`, for the command; statements are parted by "; "."""
    words, end = FRAMEWORKS[framework], "\n" + 8 * " "
    text = FILE.format(**words, layers=layers.replace("; ", end), body=body.replace("; ", end))
    Path(path).write_text(imports + text)


def ladder_of(net, module, batches=(), use=SGD, **options):
    """The ladder, by default uncompiled and without initial values, probes and a search for
    causes. A module's recording has its own batches and recipe.
    """
    options = {"initialisation": False, "quick": True, "mode": "pynative", **options}
    if isinstance(module, Recorded):
        return replay(module, net, **options)
    return compare_step(net, module, batches, use, **options)


def stage_of(ladder, name):
    (stage,) = [stage for stage in ladder.stages if title_of_stage(stage) == name]
    return stage


def agrees(net, module, batches=(), use=SGD, **options):
    """The ladder of a right port."""
    ladder = ladder_of(net, module, batches, use, **options)
    assert ladder.agrees, table(ladder)
    assert not ladder.probed.findings, ladder.probed.lines()
    return ladder


def own_step(change, each=lambda gradients, plan: gradients):
    """A step as people write it, which changes gradients: of each micro-batch, and their sums
    before the optimizer.
    """

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
                sums = (
                    gradients
                    if sums is None
                    else [s + g for s, g in zip(sums, gradients, strict=True)]
                )
            gradients = change(net, sums, plan)
            optimizer.update(gradients, rate)
            return SimpleNamespace(loss=value, grad_norm=global_norm(gradients))

        return step

    return make_step


@dataclasses.dataclass(frozen=True)
class Pair:
    """A net and its right port."""

    batch: Callable[[], Batch]
    reference: Callable[[], Any]
    port: Callable[[], nn.Cell]
    recipe: Any = SGD
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    optimizer: Callable[[nn.Cell], nn.Optimizer] | None = None
    updates: int = 2

    def climb(self, **options):
        """The port, and its ladder, which must agree."""
        module, net = self.reference(), self.port()
        options |= {"optimizer": self.optimizer(net)} if self.optimizer else {}
        options |= self.options
        batches = [self.batch() for _ in range(self.updates)]
        return net, agrees(net, module, batches, self.recipe, **options)

    def climb_compiled(self):
        """The same in graph mode, of ports under other names: what the ladder compared."""
        net, ladder = self.climb(quick=False, mode="graph")
        assert (ladder.settings, ladder.names.how) == ([], "execution order and shapes")
        assert set(ladder.names.parameters) == set(dict(net.parameters_and_names()))
        assert max(item.output.relative for item in ladder.layers) < 1e-4
        assert ("not compiled" in table(ladder)) == (self.options.get("mode") == "pynative")
        compared = {title_of_stage(stage) for stage in ladder.stages if stage.verdict != "skipped"}
        of_optimizer = {"optimizer settings", "optimizer alone"} if self.optimizer else set()
        always = {"weights", "eval forward", "loss", "gradients", "change by update 1"}
        assert always | of_optimizer <= compared
