"""Faults that ports really have, planted one at a time: each is found and named, and nothing else is."""

import dataclasses

import numpy as np
import pytest
from mindspore import nn

from resnet_fn.parity import causes
from resnet_fn.parity.name_map import NameMap, whole_array
from resnet_fn.parity.report import table
from resnet_fn.parity.stages import Stage
from resnet_fn.parity.trace import Recording, Task, Trace, make_batches
from resnet_fn.update.gradients import clip_by_global_norm, global_norm
from resnet_fn.update.loss import make_loss
from small_nets import SGD, ladder_of, own_step

pytestmark = pytest.mark.usefixtures("device")

RATES = Task(SGD, make_batches(3, 8, 3, 12, 5)).rates


@pytest.fixture
def climb(ported, reference):
    """climb(change, …): the ladder of a tiny port after `change(net)`."""

    def run(change=lambda net: None, steps=2, use=SGD, **options):
        net = ported()
        change(net)
        options = {"quick": True, "mode": "pynative", **options}
        return ladder_of(net, reference(), make_batches(steps, 8, 3, 12, 5), use, **options)

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


def test_clipping_before_the_mean_over_micro_batches(climb):
    use = dataclasses.replace(SGD, clip_norm=0.5)
    each = lambda gradients, plan: clip_by_global_norm(gradients, global_norm(gradients), plan.clip_norm)  # noqa: E731
    mean = lambda net, sums, plan: [one / plan.micro_batches for one in sums]  # noqa: E731
    ladder = climb(use=use, accumulate=2, make_step=own_step(mean, each))
    passed_until(ladder, "gradient norm")
    assert ladder.first_gradient is None
    assert ladder.first_stage.hints == ["each micro-batch is clipped before the mean; clip once, after it"]


def test_learning_rate_off_by_one_update(climb):
    rates = [*RATES, 0.0]
    ladder = climb(steps=3, schedule=lambda update: rates[update + 1])
    passed_until(ladder, "learning rate")
    assert ladder.first_stage.hints == ["the learning rate is off by one update: ours is one ahead of the reference's"]


def recorded(names, stage, ours, theirs):
    """A case with traces alone."""
    task = Task(SGD, make_batches(2, 4, 3, 4, 5))
    sides = [Recording("", task, {}, {}, Trace(**{"eval_outputs": {}, "start": {}, **one})) for one in (ours, theirs)]
    pairs = NameMap("names", {name: whole_array(name) for name in names}, {}, ())
    return causes.StageCase(Stage(stage), [], *sides, pairs)


def test_without_a_gradient_in_common_there_is_no_factor():
    sides = [{"rates": [], "gradients": {name: np.ones(3)}} for name in "ab"]
    assert causes.explain(recorded([], "gradients", *sides), search=False) == []


def test_a_rate_that_is_nearly_a_multiple_is_none():
    rates = np.array([0.1, 0.3])
    for factors, words in (([2, 2.001], []), ([1.0005] * 2, ["the learning rate is 1.0005 times the reference's"])):
        case = recorded([], "learning rate", {"rates": list(rates * factors)}, {"rates": list(rates)})
        assert causes.explain(case, search=False) == words


def test_label_smoothing_over_the_other_classes(climb):
    ladder = climb(use=dataclasses.replace(SGD, label_smoothing=0.1), loss=make_loss(0.1, over="others"), quick=False)
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
