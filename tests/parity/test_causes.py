"""Faults that ports really have, planted one at a time: each is found and named, and nothing else
is.
"""

import dataclasses
import itertools

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.parity.batches import make_batches
from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.explain import causes
from resnet_fn.parity.pair.name_map import NameMap, whole_array
from resnet_fn.parity.plan import plan_of
from resnet_fn.parity.show.titles import title_of_stage
from resnet_fn.parity.trace.data import Run, Trace
from resnet_fn.parity.trace.source import StoredSource
from resnet_fn.parity.trace.stages import CHANGE, GRADIENTS, RATE
from resnet_fn.update.gradients import clip_by_global_norm, global_norm
from resnet_fn.update.loss import make_loss
from resnet_fn.update.step import make_train_step
from small_nets import (
    SGD,
    Ours,
    Theirs,
    draw,
    images,
    labels,
    ladder_of,
    ours,
    own_step,
    t,
    theirs,
    torch,
)

pytestmark = pytest.mark.usefixtures("device")

RATES = plan_of(SGD, make_batches(3, 8, 3, 12, 3)).rates
RATES_OF_TWO = plan_of(SGD, make_batches(2, 8, 3, 12, 3)).rates


def climb(norm=None, updates=2, use=SGD, **options):
    """The ladder of a net with one BatchNorm, in the port perhaps another."""
    net = Ours(nn.Conv2d(3, 8, 3, has_bias=True), norm or nn.BatchNorm2d(8), nn.ReLU())
    module = Theirs(t.Conv2d(3, 8, 3, padding=1), t.BatchNorm2d(8), t.ReLU())
    ladder = ladder_of(net, module, [images() for _ in range(updates)], use, **options)
    return title_of_stage(ladder.first_stage), ladder.first_stage.hints


def test_an_inverted_momentum_written_by_hand_is_named():
    class ByHand(nn.Cell):
        def __init__(self):
            super().__init__()
            self.gamma, self.beta = Parameter(ops.ones(8)), Parameter(ops.zeros(8))
            self.moving_mean = Parameter(ops.zeros(8), requires_grad=False)
            self.moving_variance = Parameter(ops.ones(8), requires_grad=False)

        def construct(self, x):
            mean, variance = self.moving_mean, self.moving_variance
            if self.training:
                mean = x.mean((0, 2, 3))
                variance = ((x - mean[:, None, None]) ** 2).mean((0, 2, 3))
                unbiased = variance * (x.size // 8 / (x.size // 8 - 1))
                ops.assign(self.moving_mean, 0.1 * self.moving_mean + 0.9 * mean)
                ops.assign(self.moving_variance, 0.1 * self.moving_variance + 0.9 * unbiased)
            scale = self.gamma / ops.sqrt(variance + 1e-5)
            return (x - mean[:, None, None]) * scale[:, None, None] + self.beta[:, None, None]

    words = "momentum inverted: keeps 0.10 of the old value, the reference 0.90"
    hints = [f"part.1.moving_{name}: {words}" for name in ("mean", "variance")]
    assert climb(ByHand()) == ("BatchNorm statistics after update 1", hints)


def test_clipping_before_the_micro_batches_mean_is_named():
    use = dataclasses.replace(SGD, clip_norm=0.5)

    def each(gradients, plan):
        return clip_by_global_norm(gradients, global_norm(gradients), plan.clip_norm)

    mean = lambda net, sums, plan: [one / plan.micro_batches for one in sums]  # noqa: E731
    found = climb(use=use, accumulate=2, make_step=own_step(mean, each))
    assert found == (
        "gradient norm",
        ["each micro-batch is clipped before the mean; clip once, after it"],
    )


def test_a_learning_rate_one_update_ahead_is_named():
    rates, words = (
        [*RATES, 0.0],
        "the learning rate is off by one update: the port's is one ahead of the reference's",
    )
    assert climb(updates=3, schedule=lambda update: rates[update + 1]) == ("learning rate", [words])


def test_a_rate_ahead_inside_the_step_is_named():
    def counts_for_itself(net, loss, optimizer, **options):
        step = make_train_step(net, loss, optimizer, **options)
        following = itertools.chain(RATES[1:], itertools.repeat(0))
        return lambda images, labels, _: step(
            images, labels, Tensor(next(following), mindspore.float32)
        )

    words = (
        f"the first update is {RATES[1] / RATES[0]:.6g} times the reference's: it used the "
        "second update's learning "
    )
    words += f"rate, {RATES[1]:.6g}; off by one update"
    assert climb(updates=3, make_step=counts_for_itself) == ("change by update 1", [words])


def recorded(names, stage, ours, theirs):
    """A case with traces alone."""
    plan = plan_of(SGD, make_batches(2, 4, 3, 4, 5))
    sides = [
        Trace("", plan, {}, {}, Run(**{"eval_outputs": {}, "start": {}, **one}))
        for one in (ours, theirs)
    ]
    pairs = NameMap("names", {name: whole_array(name) for name in names}, {}, ())
    return causes.StageCase(Stage(stage), [], *sides, pairs, StoredSource(sides[1]))


def test_without_common_gradients_no_factor_is_named():
    sides = [{"rates": [], "gradients": {name: np.ones(3)}} for name in "ab"]
    assert causes.explain(recorded([], GRADIENTS, *sides), search=False) == []


def test_only_a_constant_factor_of_rates_is_named():
    rates = np.array([0.1, 0.3])
    for factors, words in (
        ([2, 2.001], []),
        ([1.0005] * 2, ["the learning rate is 1.0005 times the reference's"]),
    ):
        case = recorded([], RATE, {"rates": list(rates * factors)}, {"rates": list(rates)})
        assert causes.explain(case, search=False) == words


def test_one_flipped_element_hides_no_cause():
    start, update = np.zeros(10**6), np.ones(10**6)
    port_update = 2 * update
    port_update[0] *= -1
    sides = [
        {
            "start": {"w": start},
            "rates": [0.1, 0.2, 0.3],
            "after": [{"w": change}, {"w": change + second * update}],
            "gradients": {"w": update},
        }
        for change, second in ((port_update, 3), (update, 2))
    ]
    (hint,) = causes.explain(recorded("w", CHANGE, *sides), search=False)
    assert "off by one update" in hint


def test_label_smoothing_over_other_classes_is_named():
    use, loss = dataclasses.replace(SGD, label_smoothing=0.1), make_loss(0.1, over="others")
    stage, (hint,) = climb(use=use, loss=loss, quick=False)
    assert stage == "loss"
    assert "label smoothing spread over the other 2 classes instead of all 3 in the port" in hint


def test_every_other_way_of_clipping_is_named():
    """The last is above, in a step."""
    rng = np.random.default_rng(0)
    parts = [{"a": rng.normal(size=(3, 4)), "b": rng.normal(size=5)} for _ in range(2)]
    mean = {name: (parts[0][name] + parts[1][name]) / 2 for name in parts[0]}

    def to_norm(values):
        norm = np.sqrt(sum((value**2).sum() for value in values.values()))
        return {name: value * 0.5 / norm for name, value in values.items()}

    for words, clipped in {
        "no clipping in the port": mean,
        "each tensor is clipped by its own norm": {
            n: v * 0.5 / np.linalg.norm(v) for n, v in mean.items()
        },
        "values are clipped instead of the norm": {n: v.clip(-0.5, 0.5) for n, v in mean.items()},
    }.items():
        assert causes.another_clipping(clipped, parts, 0.5) == [words]
    assert causes.another_clipping({n: 0.9 * v for n, v in to_norm(mean).items()}, parts, 0.5) == []


def test_half_an_update_is_not_another_updates_rate():
    """With two updates, the cosine's second rate is half of the first."""

    def make_step(net, loss, optimizer, **options):
        step = make_train_step(net, loss, optimizer, **options)
        return lambda images, labels, rate: step(images, labels, rate / 2.0)

    assert RATES_OF_TWO[1] == pytest.approx(RATES_OF_TWO[0] / 2)
    words = "the first update is 0.5 times the reference's"
    assert climb(make_step=make_step) == ("change by update 1", [words])


class Scaled(nn.Cell):
    """The input times a constant that is no parameter."""

    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def construct(self, x):
        return x * (self.scale if isinstance(self.scale, Tensor | float) else Tensor(self.scale))


class ScaledThere(t.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.arange(1.0, 9))

    def forward(self, x):
        return x * self.scale


@pytest.mark.parametrize("make", [Tensor, np.array])
def test_a_constant_attribute_is_compared_with_the_buffer(make):
    numbers = np.arange(1, 9, dtype=np.float32)
    batches = [(draw(6, 8), labels(6))] * 2
    right = ladder_of(Ours(Scaled(make(numbers))), Theirs(ScaledThere()), batches)
    assert right.agrees
    assert right.settings == []
    numbers[5] = 7
    wrong = ladder_of(Ours(Scaled(make(numbers))), Theirs(ScaledThere()), batches, quick=False)
    words = "7 in the port, 6 in the reference at [5]"
    assert wrong.settings == [f"part.scale: a constant, {words}"]
    assert "part.scale: 7 for 6 at [5] in the port" in wrong.first_stage.hints


class FrozenThere(t.Module):
    """As in torchvision: a norm of buffers."""

    def __init__(self):
        super().__init__()
        for name, array in FROZEN.items():
            self.register_buffer(name, torch.from_numpy(array))

    def forward(self, x):
        scale = self.weight * (self.running_var + 1e-5).rsqrt()
        shift = self.bias - self.running_mean * scale
        return x * scale[:, None, None] + shift[:, None, None]


FROZEN = {
    name: (low + np.random.default_rng(place).random(8)).astype(np.float32)
    for place, (name, low) in enumerate(
        {"weight": 0.5, "bias": -0.5, "running_mean": -0.5, "running_var": 0.5}.items()
    )
}


class NeverTrains(t.BatchNorm2d):
    def train(self, mode=True):
        return super().train(False)


def frozen_norm(norm):
    """A norm with the frozen numbers, which are not trained."""
    names = ("weight", "bias", "running_mean", "running_var")
    ported = ("gamma", "beta", "moving_mean", "moving_variance")
    for name, own in zip(names, ported, strict=True):
        if isinstance(norm, t.Module):
            getattr(norm, name).data.copy_(torch.from_numpy(FROZEN[name]))
            getattr(norm, name).requires_grad_(False)
        else:
            getattr(norm, own).set_data(Tensor(FROZEN[name]))
            getattr(norm, own).requires_grad = False
    return norm


class NeverTrainsHere(nn.BatchNorm2d):
    def construct(self, x):
        statistics = self.gamma, self.beta, self.moving_mean, self.moving_variance
        return ops.batch_norm(x, *statistics[2:], *statistics[:2], False, eps=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.BatchNorm2d(8, 1e-5, momentum=0.99, use_batch_statistics=False),
        lambda: NeverTrainsHere(8, 1e-5),
    ],
)
@pytest.mark.parametrize("reference", [FrozenThere, lambda: frozen_norm(NeverTrains(8))])
def test_a_frozen_norm_has_no_setting_that_differs(make, reference):
    sides = (
        Ours(nn.Conv2d(3, 8, 3, has_bias=True), frozen_norm(make()), nn.ReLU()),
        Theirs(t.Conv2d(3, 8, 3, padding=1), reference(), t.ReLU()),
    )
    ladder = ladder_of(*sides, [images() for _ in range(2)])
    assert ladder.agrees
    assert ladder.settings == []


def test_a_norm_that_trains_is_no_frozen_norm():
    sides = (
        Ours(nn.Conv2d(3, 8, 3, has_bias=True), frozen_norm(nn.BatchNorm2d(8, 1e-5)), nn.ReLU()),
        Theirs(t.Conv2d(3, 8, 3, padding=1), frozen_norm(NeverTrains(8)), t.ReLU()),
    )
    ladder = ladder_of(*sides, [images() for _ in range(2)])
    assert not ladder.agrees
    words = "batch_statistics in training in the port, never in the reference"
    assert ladder.settings == [f"part.1: {words}"]


@pytest.mark.parametrize("how", ["whole", "inside", "in place"])
def test_a_compiled_reference_is_unwrapped(how):
    module = Theirs(t.Linear(8, 8), t.ReLU())
    if how == "whole":
        module = torch.compile(module, backend="eager")
    elif how == "inside":
        module.part = torch.compile(module.part, backend="eager")
    else:
        module.compile(backend="eager")
    batches = [(draw(6, 8), labels(6))] * 2
    ladder = ladder_of(Ours(nn.Dense(8, 8), nn.ReLU()), module, batches)
    assert ladder.agrees
    assert ladder.names.layers["part.0"] == "part.0"
    if how == "inside":
        assert "_orig_mod" in dict(module.part.named_parameters()).popitem()[0] or hasattr(
            module.part, "_orig_mod"
        )


@pytest.mark.parametrize(("mode", "where"), [("reflect", "inside"), ("replicate", "before")])
def test_another_kind_of_padding_is_the_cause(mode, where):
    def forward(net, x):
        if where == "before":
            x = torch.nn.functional.pad(x, (4, 4), mode=mode)
        return net.head(net.part(x).mean(2))

    how = {"padding": "same", "padding_mode": mode} if where == "inside" else {}
    module = theirs(forward, t.Conv1d(3, 8, 5, dilation=2, **how))
    net = ours(
        lambda net, x: net.head(net.part(x).mean(2)),
        nn.Conv1d(3, 8, 5, dilation=2, pad_mode="same", has_bias=True),
    )
    ladder = ladder_of(net, module, [(draw(4, 3, 12), labels(4)) for _ in range(2)])
    words = {
        "inside": f"padding_mode zeros in the port, {mode} in the reference",
        "before": f"padding by zeros in the port, by {mode} in the reference",
    }
    assert ladder.settings == [f"part: {words[where]}"]
    assert words[where] in ladder.first_layer.hints
