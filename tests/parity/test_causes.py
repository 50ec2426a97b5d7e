"""Faults that ports really have, planted one at a time: each is found and named, and nothing else is."""

import dataclasses
import itertools

import mindspore
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from resnet_fn.parity import causes
from resnet_fn.parity.replay import compare_step
from resnet_fn.parity.report import table
from resnet_fn.parity.trace import Task, make_batches
from resnet_fn.recipes import recipe
from resnet_fn.update.gradients import clip_by_global_norm, global_norm
from resnet_fn.update.loss import make_loss
from resnet_fn.update.optimizer import momentum_sgd
from resnet_fn.update.step import StepResult, make_train_step

pytestmark = pytest.mark.usefixtures("device")

# Without clipping nothing but the step itself is compiled; the learning rate suits eight samples.
RECIPE = dataclasses.replace(recipe("digits"), clip_norm=0.0, learning_rate=0.02)
RATES = Task(RECIPE, make_batches(3, 8, 3, 12, 5)).rates


@pytest.fixture
def climb(torch, ported, reference):
    """climb(change, …): the ladder of a tiny port after `change(net)`; `optimizer` is a function of the net."""

    def run(change=lambda net: None, steps=2, use=RECIPE, optimizer=lambda net: None, **options):
        torch.manual_seed(0)
        mindspore.set_seed(1)
        net = ported()
        change(net)
        batches = make_batches(steps, 8, 3, 12, 5)
        options = {"initialisation": False, **options}
        return compare_step(net, reference(), batches, use, optimizer=optimizer(net), **options)

    return run


def passed_until(ladder, name):
    assert ladder.first_stage is not None, table(ladder)
    assert ladder.first_stage.name == name, table(ladder)


def test_batch_norm_momentum_inverted(climb):
    def change(net):
        net.bn_a = nn.BatchNorm2d(8, momentum=0.1)  # torch's value, MindSpore's meaning
        net.bn_b = nn.BatchNorm2d(8, momentum=0.1)

    ladder = climb(change)
    passed_until(ladder, "BatchNorm statistics after update 1")
    assert ladder.first_layer is None
    assert ladder.first_gradient is None
    assert ladder.notes[0] == (
        "bn_a: momentum inverted: BatchNorm(momentum=0.1) keeps 0.1 of the old statistics in MindSpore; torch's "
        "momentum=0.1 is momentum=0.9 here"
    )


def test_weights_initialised_otherwise(climb):
    """MindSpore's Conv2d draws as torch's does; a bias of zeros does not."""
    zeros = Tensor(np.zeros(8, np.float32))
    ladder = climb(lambda net: ops.assign(net.stem.bias, zeros), initialisation=True)
    passed_until(ladder, "initialisation")
    assert any(hint.startswith("stem.bias: all 0 here, drawn in -0.") for hint in ladder.first_stage.hints)
    assert [stage.name for stage in ladder.stages if stage.verdict == "DIFFERS"] == ["initialisation"]


def test_weight_decay_on_gamma_and_beta(climb):
    def everything(net):
        return momentum_sgd([(parameter, 5e-4) for parameter in net.trainable_params()], 0.9, True)

    ladder = climb(optimizer=everything)
    passed_until(ladder, "optimizer alone")
    assert ladder.first_gradient is None
    words = [hint.split(" (")[0] for hint in ladder.first_stage.hints]
    assert words == ["weight decay: 0.0005 here, 0 in the reference"]
    assert not any(
        item.name.split(",")[0].endswith("weight") for item in ladder.first_stage.differences if item.excess > 1
    )


def clips_too_early(net, loss, optimizer, *, plan, **_others):
    """A step as people write it: the clipping inside the loop over micro-batches."""
    weights = tuple(net.trainable_params())
    differentiate = mindspore.value_and_grad(lambda x, y: loss(net(x), y), None, weights)

    def step(images, labels, learning_rate):
        net.set_train(True)
        value, parts, sums = 0.0, plan.micro_batches, [ops.zeros_like(weight) for weight in weights]
        for x, y in zip(images.split(len(images) // parts), labels.split(len(labels) // parts), strict=True):
            part, gradients = differentiate(x, y)
            value += part / parts
            gradients = clip_by_global_norm(gradients, global_norm(gradients), plan.clip_norm)
            sums = [s + g / parts for s, g in zip(sums, gradients, strict=True)]
        optimizer.update(sums, learning_rate)
        report = ops.stack((value, value, value * 0, value * 0))
        return StepResult(report, global_norm(sums), ops.zeros(3), ops.zeros(len(weights)), workers=1)

    return step


def test_clipping_before_the_mean_over_micro_batches(climb):
    use = dataclasses.replace(RECIPE, clip_norm=0.5)
    ladder = climb(use=use, accumulate=2, make_step=clips_too_early)
    passed_until(ladder, "gradient norm")
    assert ladder.first_gradient is None
    assert ladder.first_stage.hints == ["each micro-batch is clipped before the mean; clip once, after it"]


def test_learning_rate_off_by_one_update(climb):
    rates = [*RATES, 0.0]
    ladder = climb(steps=3, schedule=lambda update: rates[update + 1])
    passed_until(ladder, "learning rate")
    assert ladder.first_stage.hints == ["the learning rate is off by one update: ours is one ahead of the reference's"]


def test_learning_rate_off_by_one_inside_the_step(climb):
    def counts_for_itself(net, loss, optimizer, **options):
        step, following = (
            make_train_step(net, loss, optimizer, **options),
            itertools.chain(RATES[1:], itertools.repeat(0)),
        )
        return lambda images, labels, _: step(images, labels, Tensor(next(following), mindspore.float32))

    ladder = climb(steps=3, make_step=counts_for_itself)
    passed_until(ladder, "change by update 1")
    assert ladder.first_stage.hints == [
        f"the first update is {RATES[1] / RATES[0]:.6g} times the reference's: it used the second update's learning "
        f"rate, {RATES[1]:.6g}; off by one update"
    ]


def test_label_smoothing_over_the_other_classes(climb):
    ladder = climb(loss=make_loss(0.1, over="others"))
    passed_until(ladder, "loss")
    assert ladder.first_layer is None
    (hint,) = ladder.first_stage.hints
    assert "label smoothing spread over the other 4 classes for all 5 here" in hint


def test_every_other_way_of_clipping_is_named():
    rng = np.random.default_rng(0)
    parts = [{"a": rng.normal(size=(3, 4)), "b": rng.normal(size=5)} for _ in range(2)]
    mean = {name: (parts[0][name] + parts[1][name]) / 2 for name in parts[0]}

    def to_norm(values):
        norm = np.sqrt(sum((value**2).sum() for value in values.values()))
        return {name: value * 0.5 / norm for name, value in values.items()}

    each = [to_norm(part) for part in parts]
    for words, clipped in {
        "no clipping here": mean,
        "each tensor is clipped by its own norm": {n: v * 0.5 / np.linalg.norm(v) for n, v in mean.items()},
        "values are clipped instead of the norm": {n: v.clip(-0.5, 0.5) for n, v in mean.items()},
        "each micro-batch is clipped before the mean; clip once, after it": {
            n: (each[0][n] + each[1][n]) / 2 for n in mean
        },
    }.items():
        assert causes.another_clipping(clipped, parts, 0.5) == [words]
    assert causes.another_clipping({n: 0.9 * v for n, v in to_norm(mean).items()}, parts, 0.5) == []
