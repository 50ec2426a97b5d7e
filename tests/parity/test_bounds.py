"""A bound is never wider than its reason: noise, ties, large numbers, kernels, chaos."""

import dataclasses
from collections.abc import Callable
from typing import Any

import mindspore
import numpy as np
import pytest
from mindspore import nn, ops

from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.ladder import Ladder
from resnet_fn.parity.plan import plan_of
from resnet_fn.parity.record.mindspore_kernels import exact_gradients, exact_kernels
from resnet_fn.parity.show.table import table
from resnet_fn.parity.trace.difference import relative_error
from resnet_fn.parity.trace.stages import CHANGE, CLIPPED, EVAL_FORWARD, GRADIENTS, LAST, NORM
from resnet_fn.parity.trace.tree import Batch
from small_nets import (
    SGD,
    Ours,
    Theirs,
    draw,
    labels,
    ladder_of,
    ours,
    record_reference,
    stage_of,
    t,
    theirs,
    torch,
)

pytestmark = pytest.mark.usefixtures("device")


def batches(column: Callable[[], np.ndarray], count: int = 3) -> list[Batch]:
    """Batches whose first column has other numbers than the others."""
    made = []
    for _ in range(count):
        x = draw(64, 8)
        x[:, 0] = column()
        made.append((x, labels(64)))
    return made


def looked_up(
    step: Callable[[Any], Any],
    ported: Callable[[Any], Any],
    column: Callable[[], np.ndarray],
    factor: float = 1.0,
) -> Ladder:
    """Nets that look up the first feature; the port's outputs have a factor in evaluation."""

    def forward(n: Any, x: Any) -> Any:
        return n.head(torch.tanh(n.part(x[:, 1:]) + n.table(step(x[:, 0]).long())))

    def construct(self, x):
        rows = self.table(ported(x[:, 0]).astype(mindspore.int32))
        out = self.head(ops.tanh(self.part(x[:, 1:]) + rows))
        return out if self.training else out * factor

    module = theirs(forward, t.Linear(7, 8), table=t.Embedding(24, 8))
    net = ours(construct, nn.Dense(7, 8), table=nn.Embedding(24, 8))
    return ladder_of(net, module, batches(column))


def years() -> np.ndarray:
    return np.random.randint(2001, 2020, 64)


@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (1 / 1.04, False)])
def test_whole_numbers_widen_no_bound(factor, right):
    ladder = looked_up(lambda x: x - 2000, lambda x: x - 2000, years, factor)
    assert ladder.agrees == right, table(ladder)
    stage = stage_of(ladder, "eval forward")
    assert (stage.verdict, stage.differences[0].rounding < 1e-5) == (
        "ok" if right else "DIFFERS",
        True,
    )
    assert not ladder.tied  # 5.0 is 5 with any rounding


def tenths() -> np.ndarray:
    """Numbers between two tenths, but one that is 1.3."""
    numbers = (np.random.randint(1, 20, 64) + 0.5) / 10
    numbers[7] = 1.3
    return numbers


@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (1.02, False)])
def test_ties_alone_are_excused_and_named(factor, right):
    """1.3 / 0.1 is below 13 in PyTorch's float32, and 1.3 · 10 is 13: both are right."""
    ladder = looked_up(lambda x: torch.floor(x / 0.1), lambda x: ops.floor(x * 10), tenths, factor)
    assert ladder.agrees == right, table(ladder)
    if right:
        assert stage_of(ladder, "eval forward").differences[0].why == "ties"
        assert "test_bounds.py:" in ladder.tied[0]
        assert ", floor: " in ladder.tied[0]
        assert "arrays pass by a bound above 0.001" in table(ladder)


@pytest.mark.parametrize("mask", [-1e4, float(np.finfo(np.float32).min)])
@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (1.001, False)])
def test_masks_hide_no_other_number(mask, factor, right):
    def forward(n: Any, x: Any) -> Any:
        lowest = torch.finfo(x.dtype).min if mask < -1e30 else mask
        return n.head(torch.relu(n.part(x))).masked_fill(x[:, :3] > 0.8, lowest)

    def construct(self, x):
        out = self.head(ops.relu(self.part(x))) * factor
        return out.masked_fill(x[:, :3] > 0.8, mask)

    made = [(draw(16, 8), np.where(draw(16, 8)[:, :3] > 9, 1, 0).astype(np.float32))] * 2
    ladder = ladder_of(
        ours(construct, nn.Dense(8, 8)),
        theirs(forward, t.Linear(8, 8)),
        made,
        reference_loss=lambda outputs, y: (outputs.clamp(min=-9) ** 2).mean() + 0 * y.mean(),
        loss=lambda outputs, y: (outputs.clamp(min=-9) ** 2).mean() + 0 * y.mean(),
    )
    assert ladder.agrees == right, table(ladder)


def poisson(exp: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda outputs, y: (exp(outputs) - 0.5 * outputs).mean() + 0 * y.sum()


@pytest.mark.parametrize(
    ("exp", "right"), [(lambda x: x.exp(), True), (lambda x: (x * 1.0001).exp(), False)]
)
def test_an_inaccurate_kernel_is_not_the_ports_fault(exp, right):
    """Nor if the port drops: kernels are measured without dropout."""

    def forward(net, x):
        return net.head(net.drop(net.part(x)))

    module = theirs(forward, t.Linear(8, 8), drop=t.Dropout(0.5))
    net = ours(forward, nn.Dense(8, 8), drop=nn.Dropout(p=0.5))
    made = [(2 * draw(16, 8), labels(16).astype(np.float32)) for _ in range(2)]
    slow = dataclasses.replace(SGD, learning_rate=1e-3)
    losses = {"reference_loss": poisson(torch.exp), "loss": poisson(exp)}
    ladder = ladder_of(net, module, made, slow, **losses)
    assert ladder.agrees == right, table(ladder)
    if right:
        assert "MindSpore's kernels" in [item.why for item in _alone(ladder).differences]


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "rounding"), (1.1, "DIFFERS")])
def test_gradients_by_inaccurate_kernels_are_excused(factor, verdict):
    """MindSpore's tanh is 1e-4 off between 4.7 and 5, where its gradient is about as small."""

    def near_saturation(size: int) -> np.ndarray:
        return np.random.uniform(3.0, 5.0, (size, 8)).astype(np.float32)

    made = [(near_saturation(64), labels(64)) for _ in range(3)]
    module = theirs(lambda n, x: n.head(torch.tanh(n.part(x))), t.Linear(8, 8))
    with torch.no_grad():
        module.part.weight.copy_(torch.eye(8))

    def construct(self, x):
        y = self.part(x)
        # the same outputs, with gradients times the factor
        y = ops.stop_gradient(y * (1 - factor)) + y * factor
        return self.head(ops.tanh(y))

    ladder = ladder_of(ours(construct, nn.Dense(8, 8)), module, made)
    stage = stage_of(ladder, "gradients")
    assert stage.verdict == verdict, table(ladder)
    assert ladder.agrees == (factor == 1), table(ladder)
    whys = {item.why for item in stage.differences if item.verdict == "rounding"}
    assert (whys == {"MindSpore's kernels"}) == (factor == 1), table(ladder)


@pytest.mark.parametrize("factor", [1.0, 1.001])
def test_layers_behind_dropout_have_the_kernels_errors(factor):
    """With dropout masks, a layer without an error of its own is as far off as its input."""

    def forward(n, x):
        return n.head(n.drop(torch.tanh(n.part(x))))

    def construct(self, x):
        dropped = self.drop(ops.tanh(self.part(x)))
        return self.head(dropped * (factor if self.training else 1.0))

    ladder = with_dropout_near(4.0, forward, construct)
    stage = stage_of(ladder, "train layers, with dropout")
    assert stage.verdict == ("rounding" if factor == 1 else "DIFFERS"), table(ladder)
    assert ladder.agrees == (factor == 1), table(ladder)


def near(bias: float, module: Theirs) -> Theirs:
    """The module, whose layer `part` returns numbers near `bias`."""
    with torch.no_grad():
        module.part.weight.mul_(0.01)
        module.part.bias.copy_(bias + 0.05 * torch.randn_like(module.part.bias))
        module.head.weight.abs_()
    return module


def with_dropout_near(
    bias: float, forward: Callable[..., Any], construct: Callable[..., Any]
) -> Ladder:
    """Nets with a dropout, whose layer `part` returns numbers near `bias`."""
    module = near(bias, theirs(forward, t.Linear(8, 8), drop=t.Dropout(0.5)))
    net = ours(construct, nn.Dense(8, 8), drop=nn.Dropout(p=0.5))
    return ladder_of(net, module, [(draw(16, 8), labels(16)) for _ in range(2)])


@pytest.mark.parametrize("factor", [1.0, 1.001])
def test_dropout_may_lead_to_inaccurate_kernels(factor):
    """tanh is 3e-7 off near 2.4, and 8e-5 near 4.8, as which dropout keeps half of the numbers."""

    def forward(n, x):
        return n.head(torch.tanh(n.drop(n.part(x))))

    def construct(self, x):
        y = ops.tanh(self.drop(self.part(x)))
        return self.head(y * (factor if self.training else 1.0))

    ladder = with_dropout_near(2.4, forward, construct)
    assert ladder.agrees == (factor == 1), table(ladder)
    outputs = stage_of(ladder, "train forward, with dropout")
    assert [item.why for item in outputs.differences] == ["MindSpore's kernels"]


@pytest.mark.parametrize("factor", [1.0, 1.001])
def test_random_constants_may_lead_to_inaccurate_kernels(factor):
    """tanh is 2e-6 off near 3.2, and 3e-5 near 4.2."""

    def forward(n, x):
        return n.head(torch.tanh(n.part(x) * n.size))

    module = theirs(forward, t.Linear(8, 64), head=t.Linear(64, 3))
    module.register_buffer("size", torch.ones(64))

    def construct(self, x):
        y = self.part(x) * self.size
        return self.head(ops.tanh(y) * ops.where(self.size == 1, 1.0, factor))

    net = ours(construct, nn.Dense(8, 64), head=nn.Dense(64, 3))
    net.size = mindspore.Parameter(ops.ones(64), requires_grad=False)
    ladder = ladder_of(net, near(3.3, module), [(draw(16, 8), labels(16)) for _ in range(2)])
    assert ladder.agrees == (factor == 1), table(ladder)
    outputs = stage_of(ladder, "eval forward, constants drawn")
    assert outputs.verdict == ("rounding" if factor == 1 else "DIFFERS"), table(ladder)


@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize("factor", [1, 1.01])
def test_errors_of_bce_kernels_accuse_no_port(classes, factor):
    """MindSpore's ends near log(1e-12), and its mean of one number is twice that number."""

    def loss(outputs, y):
        return factor * ops.binary_cross_entropy(ops.sigmoid(outputs), y)

    ladder = ladder_of(
        ours(_last, nn.Dense(8, 8), head=nn.Dense(8, classes)),
        theirs(_last, t.Linear(8, 8), head=t.Linear(8, classes)),
        [(draw(8, 8), (draw(8, classes) > 0).astype(np.float32)) for _ in range(2)],
        reference_loss=lambda y, labels: t.functional.binary_cross_entropy(y.sigmoid(), labels),
        loss=loss,
    )
    assert ladder.agrees == (factor == 1), table(ladder)
    if factor == 1:
        line = "outputs × 100"
        assert any(line in one and "kernels" in one for one in ladder.coverage.not_exercised)


@pytest.mark.parametrize("factor", [1, 1.01])
def test_errors_of_softmax_kernels_accuse_no_port(factor):
    """A distillation loss is small where both distributions are near each other."""

    def softened(functions: Any, outputs: Any, labels: Any) -> Any:
        p = functions.log_softmax(outputs / 4.0, -1)
        target = functions.softmax(labels / 4.0, -1)
        return functions.kl_div(p, target, reduction="batchmean") * 16.0

    ladder = ladder_of(
        ours(_last, nn.Dense(8, 8), head=nn.Dense(8, 5)),
        theirs(_last, t.Linear(8, 8), head=t.Linear(8, 5)),
        [(draw(8, 8), draw(8, 5)) for _ in range(2)],
        reference_loss=lambda y, labels: softened(t.functional, y, labels),
        loss=lambda y, labels: factor * softened(ops, y, labels),
    )
    assert ladder.agrees == (factor == 1), table(ladder)


@pytest.mark.parametrize("factor", [1, 1.01])
def test_a_kernel_with_tiny_numbers_is_known(factor):
    """MindSpore's softplus has few right digits below 1e-5."""

    def gaussian(softplus: Any, log: Any) -> Any:
        def loss(outputs: Any, y: Any) -> Any:
            variance = softplus(outputs[:, 2:]) + 1e-6
            apart = outputs[:, :2] - y
            return (0.5 * (log(variance) + apart * apart / variance)).mean()

        return loss

    module = theirs(_last, t.Linear(8, 8), head=t.Linear(8, 4))
    with torch.no_grad():
        module.head.bias[2:] -= 0.3
    ladder = ladder_of(
        ours(_last, nn.Dense(8, 8), head=nn.Dense(8, 4)),
        module,
        [(draw(64, 8), draw(64, 2)) for _ in range(2)],
        reference_loss=gaussian(t.functional.softplus, torch.log),
        loss=lambda outputs, y: factor * gaussian(ops.softplus, ops.log)(outputs, y),
    )
    assert ladder.agrees == (factor == 1), table(ladder)


def test_a_kernel_of_something_else_is_left():
    x = np.linspace(-60, 10, 64).astype(np.float32)
    right = np.logaddexp(0.0, x.astype(np.float64))
    with exact_kernels(limits=False):
        softplus = ops.softplus(mindspore.Tensor(x)).numpy()
    assert np.allclose(softplus, right, rtol=1e-6, atol=0)
    kind = type(ops.Softplus())
    kernel = kind.__call__
    try:
        kind.__call__ = lambda operation, x: kernel(operation, 1.002 * x)
        with exact_kernels(limits=False):
            other = ops.softplus(mindspore.Tensor(x)).numpy()
    finally:
        kind.__call__ = kernel
    assert np.abs(other[-1] / right[-1] - 1.002) < 1e-4


@pytest.mark.parametrize("size", [1e-4, 1e-5, 1e-8])
@pytest.mark.parametrize("name", ["expm1", "log1p"])
def test_kernels_near_0_are_replaced_by_exact_functions(name, size):
    """The kernels compute exp(x) − 1 and log(1 + x), of which few digits are right near 0."""
    x = (size * draw(1000)).astype(np.float32)
    right = getattr(np, name)(x.astype(np.float64))
    given = mindspore.Tensor(x)
    with exact_kernels(limits=False) as calls:
        for result in (getattr(ops, name)(given), getattr(given, name)()):
            assert relative_error(result.numpy(), right) < 1e-7
    assert calls() == 2


@pytest.mark.parametrize(
    ("size", "factor", "agrees"),
    [(1e-4, 1.0, True), (1e-4, 1.01, False), (1e-5, 1.0, True), (1e-5, 1.1, False)],
)
def test_log1p_of_small_numbers_has_its_kernels_error(size, factor, agrees):
    def forward(self, x):
        return self.head(torch.log1p(size * torch.sigmoid(self.part(x))) / size)

    def construct(self, x):
        return self.head(factor * ops.log1p(size * ops.sigmoid(self.part(x))) / size)

    port, module = ours(construct, nn.Dense(8, 8)), theirs(forward, t.Linear(8, 8))
    rng = np.random.default_rng(0)
    batches = [(rng.normal(size=(8, 8)).astype(np.float32), labels(8)) for _ in range(2)]
    ladder = ladder_of(port, module, batches)
    assert ladder.agrees is agrees, table(ladder)


@pytest.mark.parametrize("axis", [0, -1])
def test_softmax_is_exact_in_place_of_its_kernels(axis):
    x = draw(64, 40)
    exps = np.exp(x.astype(np.float64))
    right = exps / exps.sum(axis, keepdims=True)
    ways = [
        (lambda given: ops.softmax(given, axis), right),
        (nn.Softmax(axis), right),
        (lambda given: ops.log_softmax(given, axis), np.log(right)),
        (nn.LogSoftmax(axis), np.log(right)),
    ]
    with exact_kernels(limits=False) as calls:
        errors = [relative_error(way(mindspore.Tensor(x)).numpy(), exact) for way, exact in ways]
    assert calls() == 4
    assert max(errors) < 5e-8  # half a unit in the last place


@pytest.mark.parametrize("axis", [0, -1])
def test_gradients_of_softmax_are_exact(axis):
    x, weight = draw(64, 40), draw(64, 40)
    exps = np.exp(x.astype(np.float64))
    p = exps / exps.sum(axis, keepdims=True)
    ways = [
        (ops.softmax, p * (weight - (p * weight).sum(axis, keepdims=True))),
        (ops.log_softmax, weight - p * weight.sum(axis, keepdims=True)),
    ]
    given = mindspore.Tensor(weight)
    with exact_gradients():
        for function, right in ways:
            gradient = mindspore.grad(lambda x: (function(x, axis) * given).sum())  # noqa: B023
            assert relative_error(gradient(mindspore.Tensor(x)).numpy(), right) < 1e-7


def _last(self, x):
    return self.head(self.part(x))


def _alone(ladder: Ladder) -> Stage:
    return stage_of(ladder, "loss alone")


def test_weights_are_compared_as_far_as_float32_follows():
    """With two samples, a net with many norms amplifies each rounding from update to update."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    layers: list[Any] = [t.Conv2d(3, 8, 3, 2, 1, bias=False)]
    ported: list[Any] = [_conv(3, 8, 3, 2)]
    for _ in range(5):
        layers += [t.Conv2d(8, 8, 3, 1, 1, groups=8, bias=False), t.BatchNorm2d(8), t.ReLU6()]
        layers += [t.Conv2d(8, 8, 1, bias=False), t.BatchNorm2d(8), t.ReLU6()]
        ported += [_conv(8, 8, 3, 1, 8), nn.BatchNorm2d(8), nn.ReLU6()]
        ported += [_conv(8, 8, 1, 1), nn.BatchNorm2d(8), nn.ReLU6()]
    made = [
        (rng.normal(size=(2, 3, 8, 8)).astype(np.float32), rng.integers(0, 3, 2).astype(np.int32))
        for _ in range(5)
    ]
    use = dataclasses.replace(SGD, learning_rate=0.5)
    ladder = ladder_of(Ours(*ported), Theirs(*layers), made, use)
    assert ladder.agrees, table(ladder)
    assert stage_of(ladder, "BatchNorm statistics after update 1").verdict == "ok"
    (last,) = [stage for stage in ladder.stages if stage.id.name == LAST.name]
    assert last.id.update < 5  # rounding decides about update 5


def _conv(channels: int, width: int, kernel: int, stride: int, group: int = 1) -> nn.Conv2d:
    """A convolution without bias, padded as PyTorch's."""
    pads = {"pad_mode": "pad", "padding": kernel // 2, "group": group, "has_bias": False}
    return nn.Conv2d(channels, width, kernel, stride, **pads)


class Experts(t.Module):
    """A mixture of experts, each of which runs on the samples that the gate gives it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = t.Linear(8, 4)
        self.experts = t.ModuleList([t.Linear(8, 8) for _ in range(4)])
        # the second gate is the first but for rounding, which decides between both experts
        self.gate.weight.data[1] = self.gate.weight.data[0] * (1 + 2e-8)
        self.gate.bias.data[:] = torch.tensor([1.0, 1.0, 0.0, 0.0])

    def forward(self, x: Any) -> Any:
        scores = (self.gate(x) / 3.0).softmax(-1)
        weight, chosen = scores.max(-1)
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            rows = torch.where(chosen == index)[0]
            out = out.index_add(0, rows, expert(x[rows]) * weight[rows, None])
        return out


def test_a_mixture_of_experts_is_recorded():
    torch.manual_seed(0)
    plan = plan_of(SGD, [(draw(64, 8), labels(64)) for _ in range(2)])
    trace = record_reference(Theirs(Experts()), plan, probes=False)
    found = [layer for layer in trace.layers["eval"] if layer.name.startswith("part.experts")]
    assert len(found) == 4
    assert all(layer.output_rounding < 1e-5 for layer in found)


def test_a_run_failing_under_noise_gives_a_note():
    class Saturated(t.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = t.Linear(8, 3)

        def forward(self, x: Any) -> Any:
            return torch.sigmoid(40 * self.head(x)) * 1.0

    def loss(outputs: Any, y: Any) -> Any:
        wanted = torch.nn.functional.one_hot(y.long(), 3).to(outputs.dtype)
        return torch.nn.functional.binary_cross_entropy(outputs, wanted)

    plan = plan_of(SGD, [(draw(16, 8), labels(16)) for _ in range(2)])
    trace = record_reference(Saturated(), plan, loss, probes=False)
    lines = [note for note in trace.notes if "under noise" in note]
    assert len(lines) == 1
    assert "between 0 and 1" in lines[0]
    assert trace.rounding[EVAL_FORWARD]["logits"] > 0  # against float64


def test_noise_reaches_clipped_gradients_norm_and_change():
    plan = plan_of(
        dataclasses.replace(SGD, clip_norm=0.1), [(draw(16, 8), labels(16)) for _ in range(2)]
    )
    net = Theirs(t.Linear(8, 8), t.ReLU())
    trace = record_reference(net, plan, probes=False)
    scaled = trace.rounding[GRADIENTS]["part.0.weight"]
    assert trace.rounding[CLIPPED]["part.0.weight"] > scaled / 3
    assert trace.rounding[CHANGE]["part.0.weight"] > scaled / 3
    assert trace.rounding[NORM]["norm"] > 2e-8
