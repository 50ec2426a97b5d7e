"""Faults that ports really have, planted one at a time: each is found and named, and nothing else
is.
"""

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
    cell,
    draw,
    images,
    labels,
    ladder_of,
    module,
    ones,
    ours,
    own_step,
    t,
    theirs,
    torch,
    vectors,
)

pytestmark = pytest.mark.usefixtures("device")

RATES = plan_of(SGD, make_batches(3, 8, 3, 12, 3)).rates


def ladder_with(norm, reference=None, updates=2, use=SGD, **options):
    """The ladder of a net with one norm, in the reference by default BatchNorm."""
    net = Ours(nn.Conv2d(3, 8, 3, has_bias=True), norm, nn.ReLU())
    module = Theirs(t.Conv2d(3, 8, 3, padding=1), reference or t.BatchNorm2d(8), t.ReLU())
    return ladder_of(net, module, [images() for _ in range(updates)], use, **options)


def climb(norm=None, **options):
    """The first stage that differs, and its hints."""
    stage = ladder_with(norm or nn.BatchNorm2d(8), **options).first_stage
    return title_of_stage(stage), stage.hints


def test_an_inverted_momentum_written_by_hand_is_named():
    def construct(self, x):
        norm = ops.BatchNorm(is_training=self.training, epsilon=1e-5, momentum=0.9)
        return norm(x, self.gamma, self.beta, self.moving_mean, self.moving_variance)[0]

    statistics = {
        name: Parameter(start, requires_grad=False)
        for name, start in (("moving_mean", ops.zeros(8)), ("moving_variance", ops.ones(8)))
    }
    norm = cell(construct, gamma=ones(8), beta=ones(8), **statistics)
    words = "momentum inverted: keeps 0.10 of the old value, the reference 0.90"
    hints = [f"part.1.{name}: {words}" for name in statistics]
    expected = "BatchNorm statistics after update 1", hints
    assert climb(norm) == expected


def test_clipping_before_the_micro_batches_mean_is_named():
    def each(gradients, plan):
        return clip_by_global_norm(gradients, global_norm(gradients), plan.clip_norm)

    def mean(net, sums, plan):
        return [array / plan.micro_batches for array in sums]

    use = SGD.changed(clip_norm=0.5)
    words = "each micro-batch is clipped before the mean; clip once, after it"
    step = own_step(mean, each)
    assert climb(use=use, accumulate=2, make_step=step) == ("gradient norm", [words])


def test_a_learning_rate_one_update_ahead_is_named():
    rates = [*RATES, 0.0]
    words = "the learning rate is off by one update: the port's is one ahead of the reference's"
    assert climb(updates=3, schedule=lambda update: rates[update + 1]) == ("learning rate", [words])


def with_rates(change):
    """A step that changes the learning rates."""

    def make_step(net, loss, optimizer, **options):
        step = make_train_step(net, loss, optimizer, **options)
        return lambda images, labels, rate: step(images, labels, change(rate))

    return make_step


def test_a_rate_ahead_inside_the_step_is_named():
    following = itertools.chain(RATES[1:], itertools.repeat(0))
    step = with_rates(lambda rate: Tensor(next(following), mindspore.float32))
    words = (
        f"the first update is {RATES[1] / RATES[0]:.6g} times the reference's: it used the "
        f"second update's learning rate, {RATES[1]:.6g}; off by one update"
    )
    assert climb(updates=3, make_step=step) == ("change by update 1", [words])


def test_half_an_update_is_not_another_updates_rate():
    """With two updates, the cosine's second rate is half of the first."""
    rates = plan_of(SGD, make_batches(2, 8, 3, 12, 3)).rates
    assert rates[1] == pytest.approx(rates[0] / 2)
    words = "the first update is 0.5 times the reference's"
    step = with_rates(lambda rate: rate / 2.0)
    assert climb(make_step=step) == ("change by update 1", [words])


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
    use, loss = SGD.changed(label_smoothing=0.1), make_loss(0.1, over="others")
    stage, (hint,) = climb(use=use, loss=loss, quick=False)
    assert stage == "loss"
    assert "label smoothing spread over the other 2 classes instead of all 3 in the port" in hint


def test_every_other_way_of_clipping_is_named():
    """The last is above, in a step."""
    rng = np.random.default_rng(0)
    parts = [{"a": rng.normal(size=(3, 4)), "b": rng.normal(size=5)} for _ in range(2)]
    mean = {name: (first + parts[1][name]) / 2 for name, first in parts[0].items()}
    norm = np.sqrt(sum((array**2).sum() for array in mean.values()))
    for words, clip in (
        (["no clipping in the port"], lambda array: array),
        (
            ["each tensor is clipped by its own norm"],
            lambda array: array * 0.5 / np.linalg.norm(array),
        ),
        (["values are clipped instead of the norm"], lambda array: array.clip(-0.5, 0.5)),
        ([], lambda array: 0.9 * array * 0.5 / norm),
    ):
        clipped = {name: clip(array) for name, array in mean.items()}
        assert causes.another_clipping(clipped, parts, 0.5) == words


@pytest.mark.parametrize("make", [Tensor, np.array])
def test_a_constant_attribute_is_compared_with_the_buffer(make):
    numbers = np.arange(1, 9, dtype=np.float32)
    reference = module(lambda self, x: x * self.scale)
    reference.register_buffer("scale", torch.arange(1.0, 9))

    def climb_with(numbers, **options):
        """The numbers are no parameter."""
        scaled = cell(lambda self, x: x * Tensor(self.scale), scale=make(numbers))
        return ladder_of(Ours(scaled), Theirs(reference), vectors(), **options)

    right = climb_with(numbers)
    assert (right.agrees, right.settings) == (True, [])
    numbers[5] = 7
    wrong = climb_with(numbers, quick=False)
    assert wrong.settings == ["part.scale: a constant, 7 in the port, 6 in the reference at [5]"]
    assert "part.scale: 7 for 6 at [5] in the port" in wrong.first_stage.hints


RNG = np.random.default_rng(0)
FROZEN = {
    names: (low + RNG.random(8)).astype(np.float32)
    for names, low in {
        ("weight", "gamma"): 0.5,
        ("bias", "beta"): -0.5,
        ("running_mean", "moving_mean"): -0.5,
        ("running_var", "moving_variance"): 0.5,
    }.items()
}


def frozen_buffers():
    """As in torchvision: a norm of buffers."""

    def forward(self, x):
        scale = self.weight * (self.running_var + 1e-5).rsqrt()
        shift = self.bias - self.running_mean * scale
        return x * scale[:, None, None] + shift[:, None, None]

    norm = module(forward)
    for (name, _), array in FROZEN.items():
        norm.register_buffer(name, torch.from_numpy(array))
    return norm


class NeverTrains(t.BatchNorm2d):
    def train(self, mode=True):
        return super().train(False)


class PortedNeverTrains(nn.BatchNorm2d):
    def construct(self, x):
        statistics = self.moving_mean, self.moving_variance
        return ops.batch_norm(x, *statistics, self.gamma, self.beta, False, eps=1e-5)


def frozen_norm(norm):
    """A norm with the frozen numbers, which are not trained."""
    for (name, ported), array in FROZEN.items():
        if isinstance(norm, t.Module):
            getattr(norm, name).data.copy_(torch.from_numpy(array))
            getattr(norm, name).requires_grad_(False)
        else:
            getattr(norm, ported).set_data(Tensor(array))
            getattr(norm, ported).requires_grad = False
    return norm


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.BatchNorm2d(8, 1e-5, momentum=0.99, use_batch_statistics=False),
        lambda: PortedNeverTrains(8, 1e-5),
    ],
)
@pytest.mark.parametrize("reference", [frozen_buffers, lambda: frozen_norm(NeverTrains(8))])
def test_a_frozen_norm_has_no_setting_that_differs(make, reference):
    ladder = ladder_with(frozen_norm(make()), reference())
    assert (ladder.agrees, ladder.settings) == (True, [])


def test_a_norm_that_trains_is_no_frozen_norm():
    ladder = ladder_with(frozen_norm(nn.BatchNorm2d(8, 1e-5)), frozen_norm(NeverTrains(8)))
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
    ladder = ladder_of(Ours(nn.Dense(8, 8), nn.ReLU()), module, vectors())
    assert ladder.agrees
    assert ladder.names.layers["part.0"] == "part.0"
    assert how != "inside" or hasattr(module.part, "_orig_mod")


@pytest.mark.parametrize(
    ("how", "around", "words"),
    [
        (
            {"padding": "same", "padding_mode": "reflect"},
            lambda x: x,
            "padding_mode zeros in the port, reflect in the reference",
        ),
        (
            {},
            lambda x: torch.nn.functional.pad(x, (4, 4), mode="replicate"),
            "padding by zeros in the port, by replicate in the reference",
        ),
    ],
    ids=["inside", "before"],
)
def test_another_kind_of_padding_is_the_cause(how, around, words):
    module = theirs(
        lambda net, x: net.head(net.part(around(x)).mean(2)), t.Conv1d(3, 8, 5, dilation=2, **how)
    )
    net = ours(
        lambda net, x: net.head(net.part(x).mean(2)),
        nn.Conv1d(3, 8, 5, dilation=2, pad_mode="same", has_bias=True),
    )
    ladder = ladder_of(net, module, [(draw(4, 3, 12), labels(4)) for _ in range(2)])
    assert ladder.settings == [f"part: {words}"]
    assert words in ladder.first_layer.hints
