"""A bound is never wider than its reason: noise, ties, large numbers, kernels, chaos."""

from functools import partial

import mindspore
import numpy as np
import pytest
from mindspore import nn, ops

from resnet_fn.parity.record.mindspore_kernels import exact_gradients, exact_kernels
from resnet_fn.parity.show.table import table
from resnet_fn.parity.trace.difference import relative_error
from resnet_fn.parity.trace.stages import CHANGE, CLIPPED, EVAL_FORWARD, GRADIENTS, LAST, NORM
from small_nets import (
    PADDED,
    SGD,
    Ours,
    Theirs,
    draw,
    labels,
    ladder_of,
    ours,
    ours_of,
    stage_of,
    t,
    theirs,
    theirs_of,
    torch,
    traced,
)

pytestmark = pytest.mark.usefixtures("device")


def batches(rows, updates=2):
    return [(draw(rows, 8), labels(rows)) for _ in range(updates)]


def judged(right, *nets_and_batches, **options):
    """The ladder, which agrees if the port is right."""
    ladder = ladder_of(*nets_and_batches, **options)
    assert ladder.agrees == right, table(ladder)
    return ladder


def looked_up(step, ported, column, factor, right):
    """Nets that look up the first feature; the port's outputs have a factor in evaluation."""

    def forward(n, x):
        return n.head(torch.tanh(n.part(x[:, 1:]) + n.table(step(x[:, 0]).long())))

    def construct(self, x):
        rows = self.table(ported(x[:, 0]).astype(mindspore.int32))
        out = self.head(ops.tanh(self.part(x[:, 1:]) + rows))
        return out if self.training else out * factor

    module = theirs(forward, t.Linear(7, 8), table=t.Embedding(24, 8))
    net = ours(construct, nn.Dense(7, 8), table=nn.Embedding(24, 8))
    made = batches(64, 3)
    for x, _ in made:
        x[:, 0] = column()
    return judged(right, net, module, made)


def years():
    return np.random.randint(2001, 2020, 64)


@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (1 / 1.04, False)])
def test_whole_numbers_widen_no_bound(factor, right):
    ladder = looked_up(lambda x: x - 2000, lambda x: x - 2000, years, factor, right)
    stage = stage_of(ladder, "eval forward")
    assert stage.verdict == ("ok" if right else "DIFFERS")
    assert stage.differences[0].rounding < 1e-5
    assert not ladder.tied  # 5.0 is 5 with any rounding


def tenths():
    """Numbers between two tenths, but one that is 1.3."""
    numbers = (np.random.randint(1, 20, 64) + 0.5) / 10
    numbers[7] = 1.3
    return numbers


@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (1.02, False)])
def test_ties_alone_are_excused_and_named(factor, right):
    """1.3 / 0.1 is below 13 in PyTorch's float32, and 1.3 · 10 is 13: both are right."""
    floors = lambda x: torch.floor(x / 0.1), lambda x: ops.floor(x * 10)
    ladder = looked_up(*floors, tenths, factor, right)
    if right:
        assert stage_of(ladder, "eval forward").differences[0].why == "ties"
        assert "test_bounds.py:" in ladder.tied[0]
        assert ", floor: " in ladder.tied[0]
        assert "arrays pass by a bound above 0.001" in table(ladder)


@pytest.mark.parametrize("mask", [-1e4, float(np.finfo(np.float32).min)])
@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (1.001, False)])
def test_masks_hide_no_other_number(mask, factor, right):
    def forward(n, x):
        lowest = torch.finfo(x.dtype).min if mask < -1e30 else mask
        return n.head(torch.relu(n.part(x))).masked_fill(x[:, :3] > 0.8, lowest)

    def construct(self, x):
        out = self.head(ops.relu(self.part(x))) * factor
        return out.masked_fill(x[:, :3] > 0.8, mask)

    def loss(outputs, y):
        return (outputs.clamp(min=-9) ** 2).mean() + 0 * y.sum()

    judged(
        right,
        ours_of(construct),
        theirs_of(forward),
        [(draw(16, 8), labels(16).astype(np.float32))] * 2,
        reference_loss=loss,
        loss=loss,
    )


@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (1.0001, False)])
def test_an_inaccurate_kernel_is_not_the_ports_fault(factor, right):
    """Nor if the port drops: kernels are measured without dropout."""

    def forward(net, x):
        return net.head(net.drop(net.part(x)))

    def poisson(factor):
        return lambda outputs, y: ((outputs * factor).exp() - 0.5 * outputs).mean() + 0 * y.sum()

    module = theirs_of(forward, drop=t.Dropout(0.5))
    net = ours_of(forward, drop=nn.Dropout(p=0.5))
    made = [(2 * draw(16, 8), labels(16).astype(np.float32)) for _ in range(2)]
    slow = SGD.changed(learning_rate=1e-3)
    losses = {"reference_loss": poisson(1), "loss": poisson(factor)}
    ladder = judged(right, net, module, made, slow, **losses)
    if right:
        alone = stage_of(ladder, "loss alone")
        assert "MindSpore's kernels" in [item.why for item in alone.differences]


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "rounding"), (1.1, "DIFFERS")])
def test_gradients_by_inaccurate_kernels_are_excused(factor, verdict):
    """MindSpore's tanh is 1e-4 off between 4.7 and 5, where its gradient is about as small."""
    made = [(np.random.uniform(3.0, 5.0, (64, 8)).astype(np.float32), labels(64)) for _ in range(3)]
    module = theirs(lambda n, x: n.head(torch.tanh(n.part(x))), t.Linear(8, 8))
    t.init.eye_(module.part.weight)

    def construct(self, x):
        y = self.part(x)
        # the same outputs, with gradients times the factor
        y = ops.stop_gradient(y * (1 - factor)) + y * factor
        return self.head(ops.tanh(y))

    ladder = judged(factor == 1, ours_of(construct), module, made)
    stage = stage_of(ladder, "gradients")
    assert stage.verdict == verdict, table(ladder)
    whys = {item.why for item in stage.differences if item.verdict == "rounding"}
    assert (whys == {"MindSpore's kernels"}) == (factor == 1), table(ladder)


def near(bias, module):
    """The module, whose layer `part` returns numbers near `bias`."""
    with torch.no_grad():
        module.part.weight.mul_(0.01)
        module.part.bias.copy_(bias + 0.05 * torch.randn_like(module.part.bias))
        module.head.weight.abs_()
    return module


def with_dropout_near(bias, hidden, factor):
    """Nets with a dropout, whose layer `part` returns numbers near `bias`; the port has a factor
    in training.
    """

    def construct(self, x):
        return self.head(hidden(self, x) * (factor if self.training else 1.0))

    module = theirs(lambda n, x: n.head(hidden(n, x)), t.Linear(8, 8), drop=t.Dropout(0.5))
    net = ours_of(construct, drop=nn.Dropout(p=0.5))
    ladder = judged(factor == 1, net, near(bias, module), batches(16))
    return ladder


@pytest.mark.parametrize("factor", [1.0, 1.001])
def test_layers_behind_dropout_have_the_kernels_errors(factor):
    """With dropout masks, a layer without an error of its own is as far off as its input."""
    ladder = with_dropout_near(4.0, lambda n, x: n.drop(n.part(x).tanh()), factor)
    stage = stage_of(ladder, "train layers, with dropout")
    assert stage.verdict == ("rounding" if factor == 1 else "DIFFERS"), table(ladder)


@pytest.mark.parametrize("factor", [1.0, 1.001])
def test_dropout_may_lead_to_inaccurate_kernels(factor):
    """tanh is 3e-7 off near 2.4, and 8e-5 near 4.8, as which dropout keeps half of the numbers."""
    ladder = with_dropout_near(2.4, lambda n, x: n.drop(n.part(x)).tanh(), factor)
    outputs = stage_of(ladder, "train forward, with dropout")
    assert [item.why for item in outputs.differences] == ["MindSpore's kernels"]


@pytest.mark.parametrize("factor", [1.0, 1.001])
def test_random_constants_may_lead_to_inaccurate_kernels(factor):
    """tanh is 2e-6 off near 3.2, and 3e-5 near 4.2."""

    def forward(n, x):
        return n.head(torch.tanh(n.part(x) * n.size))

    def construct(self, x):
        y = self.part(x) * self.size
        return self.head(ops.tanh(y) * ops.where(self.size == 1, 1.0, factor))

    size = t.Buffer(torch.ones(64))
    module = theirs(forward, t.Linear(8, 64), head=t.Linear(64, 3), size=size)
    size = mindspore.Parameter(ops.ones(64), requires_grad=False)
    net = ours(construct, nn.Dense(8, 64), head=nn.Dense(64, 3), size=size)
    ladder = judged(factor == 1, net, near(3.3, module), batches(16))
    outputs = stage_of(ladder, "eval forward, constants drawn")
    assert outputs.verdict == ("rounding" if factor == 1 else "DIFFERS"), table(ladder)


def sigmoid_and_log(functions, outputs, y):
    """MindSpore's ends near log(1e-12), and its mean of one number is twice that number."""
    return functions.binary_cross_entropy(outputs.sigmoid(), y)


def distillation(functions, outputs, y):
    """It is small where both distributions are near each other."""
    p = functions.log_softmax(outputs / 4.0, -1)
    target = functions.softmax(y / 4.0, -1)
    return functions.kl_div(p, target, reduction="batchmean") * 16.0


def gaussian(functions, outputs, y):
    """MindSpore's softplus has few right digits below 1e-5."""
    variance = functions.softplus(outputs[:, 2:] - 0.3) + 1e-6
    apart = outputs[:, :2] - y
    return (0.5 * (variance.log() + apart * apart / variance)).mean()


@pytest.mark.parametrize("factor", [1, 1.01])
@pytest.mark.parametrize(
    ("function", "classes", "target"),
    [
        (sigmoid_and_log, 1, lambda: (draw(8, 1) > 0).astype(np.float32)),
        (sigmoid_and_log, 3, lambda: (draw(8, 3) > 0).astype(np.float32)),
        (distillation, 5, lambda: draw(8, 5)),
        (gaussian, 4, lambda: draw(64, 2)),
    ],
)
def test_errors_of_a_losss_kernels_accuse_no_port(function, classes, target, factor):
    targets = [target(), target()]
    ladder = judged(
        factor == 1,
        ours_of(_last, head=nn.Dense(8, classes)),
        theirs_of(_last, head=t.Linear(8, classes)),
        [(draw(len(y), 8), y) for y in targets],
        reference_loss=partial(function, t.functional),
        loss=lambda outputs, y: factor * function(ops, outputs, y),
    )
    if function is sigmoid_and_log and factor == 1:
        lines = [line for line in ladder.coverage.not_exercised if "outputs × 100" in line]
        assert "kernels" in str(lines), lines


def test_a_kernel_of_something_else_is_left():
    x = np.linspace(-60, 10, 64).astype(np.float32)
    right = np.logaddexp(0.0, x.astype(np.float64))

    def softplus():
        with exact_kernels(limits=False):
            return ops.softplus(mindspore.Tensor(x)).numpy()

    np.testing.assert_allclose(softplus(), right, rtol=1e-6)
    kind = type(ops.Softplus())
    kernel = kind.__call__
    try:
        kind.__call__ = lambda operation, x: kernel(operation, 1.002 * x)
        other = softplus()
    finally:
        kind.__call__ = kernel
    assert np.abs(other[-1] / right[-1] - 1.002) < 1e-4


@pytest.mark.parametrize("size", [1e-4, 1e-8])
@pytest.mark.parametrize("name", ["expm1", "log1p"])
def test_kernels_near_0_are_replaced_by_exact_functions(name, size):
    """The kernels compute exp(x) − 1 and log(1 + x), of which few digits are right near 0."""
    x = (size * draw(1000)).astype(np.float32)
    right = getattr(np, name)(x.astype(np.float64))
    numbers = mindspore.Tensor(x)
    with exact_kernels(limits=False) as calls:
        for result in (getattr(ops, name)(numbers), getattr(numbers, name)()):
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

    judged(agrees, ours_of(construct), theirs_of(forward), batches(8))


def softmax_in_64_bits(x, axis):
    exps = np.exp(x.astype(np.float64))
    return exps / exps.sum(axis, keepdims=True)


@pytest.mark.parametrize("axis", [0, -1])
def test_softmax_is_exact_in_place_of_its_kernels(axis):
    x = draw(64, 40)
    p, numbers = softmax_in_64_bits(x, axis), mindspore.Tensor(x)
    with exact_kernels(limits=False) as calls:
        results = [
            (ops.softmax(numbers, axis), p),
            (nn.Softmax(axis)(numbers), p),
            (ops.log_softmax(numbers, axis), np.log(p)),
            (nn.LogSoftmax(axis)(numbers), np.log(p)),
        ]
    assert calls() == 4
    for result, exact in results:
        assert relative_error(result.numpy(), exact) < 5e-8  # half a unit in the last place


@pytest.mark.parametrize("axis", [0, -1])
def test_gradients_of_softmax_are_exact(axis):
    x, weight = draw(64, 40), draw(64, 40)
    p, factor = softmax_in_64_bits(x, axis), mindspore.Tensor(weight)
    ways = [
        (ops.softmax, p * (weight - (p * weight).sum(axis, keepdims=True))),
        (ops.log_softmax, weight - p * weight.sum(axis, keepdims=True)),
    ]
    with exact_gradients():
        for function, right in ways:
            gradient = mindspore.grad(lambda x: (function(x, axis) * factor).sum())  # noqa: B023
            assert relative_error(gradient(mindspore.Tensor(x)).numpy(), right) < 1e-7


def _last(self, x):
    return self.head(self.part(x))


def test_weights_are_compared_as_far_as_float32_follows():
    """With two samples, a net with many norms amplifies each rounding from update to update."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    layers, ported = [t.Conv2d(3, 8, 3, 2, 1, bias=False)], [nn.Conv2d(3, 8, 3, 2, **PADDED)]
    for kernel, groups in [(3, 8), (1, 1)] * 5:
        conv = t.Conv2d(8, 8, kernel, padding=kernel // 2, groups=groups, bias=False)
        layers += [conv, t.BatchNorm2d(8), t.ReLU6()]
        ported += [nn.Conv2d(8, 8, kernel, group=groups), nn.BatchNorm2d(8), nn.ReLU6()]
    made = [
        (rng.normal(size=(2, 3, 8, 8)).astype(np.float32), rng.integers(0, 3, 2).astype(np.int32))
        for _ in range(5)
    ]
    use = SGD.changed(learning_rate=0.5)
    ladder = judged(True, Ours(*ported), Theirs(*layers), made, use)
    assert stage_of(ladder, "BatchNorm statistics after update 1").verdict == "ok"
    (last,) = [stage for stage in ladder.stages if stage.id.name == LAST.name]
    assert last.id.update < 5  # rounding decides about update 5


class Experts(t.Module):
    """A mixture of experts, each of which runs on the samples that the gate gives it."""

    def __init__(self):
        super().__init__()
        self.gate = t.Linear(8, 4)
        self.experts = t.ModuleList([t.Linear(8, 8) for _ in range(4)])
        # the second gate is the first but for rounding, which decides between both experts
        self.gate.weight.data[1] = self.gate.weight.data[0] * (1 + 2e-8)
        self.gate.bias.data[:] = torch.tensor([1.0, 1.0, 0.0, 0.0])

    def forward(self, x):
        scores = (self.gate(x) / 3.0).softmax(-1)
        weight, chosen = scores.max(-1)
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            rows = torch.where(chosen == index)[0]
            out = out.index_add(0, rows, expert(x[rows]) * weight[rows, None])
        return out


def test_a_mixture_of_experts_is_recorded():
    torch.manual_seed(0)
    trace = traced(Theirs(Experts()), batches(64))
    experts = [layer for layer in trace.layers["eval"] if layer.name.startswith("part.experts")]
    assert len(experts) == 4
    assert max(layer.output_rounding for layer in experts) < 1e-5


def test_a_run_failing_under_noise_gives_a_note():
    def forward(self, x):
        return torch.sigmoid(40 * self.head(x)) * 1.0

    def loss(outputs, y):
        wanted = torch.nn.functional.one_hot(y.long(), 3).to(outputs.dtype)
        return torch.nn.functional.binary_cross_entropy(outputs, wanted)

    trace = traced(theirs(forward), batches(16), loss)
    (line,) = [note for note in trace.notes if "under noise" in note]
    assert "between 0 and 1" in line
    assert trace.rounding[EVAL_FORWARD]["logits"] > 0  # against float64


def test_noise_reaches_clipped_gradients_norm_and_change():
    clipped = SGD.changed(clip_norm=0.1)
    rounding = traced(Theirs(t.Linear(8, 8), t.ReLU()), batches(16), use=clipped).rounding
    for stage in (CLIPPED, CHANGE):
        assert rounding[stage]["part.0.weight"] > rounding[GRADIENTS]["part.0.weight"] / 3
    assert rounding[NORM]["norm"] > 2e-8
