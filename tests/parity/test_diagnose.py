"""Faults that ports really have, planted one at a time: each is found and named, and nothing else is."""

import dataclasses

import mindspore
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from resnet_fn.models import create_model
from resnet_fn.recipes import recipe
from resnet_fn.update.gradients import clip_by_global_norm, global_norm
from resnet_fn.update.loss import make_loss
from resnet_fn.update.optimizer import momentum_sgd
from resnet_fn.update.step import StepResult, make_train_step

torch = pytest.importorskip("torch", reason="the ladder compares with torch: pip install 'resnet_fn[torch]'")

from resnet_fn.parity.ladder import compare_step, compressed_rates  # noqa: E402
from resnet_fn.parity.reference import reference_net  # noqa: E402
from resnet_fn.parity.report import table  # noqa: E402
from resnet_fn.parity.trace import make_batches  # noqa: E402

pytestmark = [pytest.mark.usefixtures("device"), pytest.mark.slow]

# Without clipping nothing but the step itself is compiled; the learning rate suits eight samples.
RECIPE = dataclasses.replace(recipe("digits"), clip_norm=0.0, learning_rate=0.02)


def climb(change=None, steps=2, use=RECIPE, **options):
    torch.manual_seed(0)
    mindspore.set_seed(1)
    net = create_model("resnet8", num_classes=10)
    if change:
        change(net)
    for key in ("optimizer",):
        if key in options:
            options[key] = options[key](net)
    reference = reference_net("resnet8", num_classes=10)
    return compare_step(net, reference, make_batches(steps, 8, 3, 16, 10), use, **options)


def passed_until(ladder, name):
    assert ladder.first_stage is not None, table(ladder)
    assert ladder.first_stage.name == name, table(ladder)


def test_batch_norm_momentum_inverted():
    def change(net):
        for _, cell in net.cells_and_names():
            if isinstance(cell, nn.BatchNorm2d):
                new = nn.BatchNorm2d(cell.num_features, momentum=0.1)  # torch's value, MindSpore's meaning
                cell.momentum, cell.bn_train = new.momentum, new.bn_train

    ladder = climb(change)
    passed_until(ladder, "BatchNorm statistics after update 1")
    assert ladder.first_layer is None
    assert ladder.first_gradient is None
    assert ladder.first_stage.first.name == "bn1.moving_mean"
    hint = "bn1.moving_mean: momentum inverted: keeps 0.10 of the old value, the reference 0.90 (18 statistics so)"
    assert ladder.first_stage.hints == [hint]
    assert ladder.notes[0] == (
        "bn1: momentum inverted: BatchNorm(momentum=0.1) keeps 0.1 of the old statistics in MindSpore; torch's "
        "momentum=0.1 is momentum=0.9 here"
    )


def test_batch_norm_eps():
    def change(net):
        for name, cell in net.cells_and_names():
            if name == "layer2.0.bn2":
                new = nn.BatchNorm2d(cell.num_features, eps=1e-4, momentum=0.9)
                cell.eps, cell.bn_infer, cell.bn_train = new.eps, new.bn_infer, new.bn_train

    ladder = climb(change)
    passed_until(ladder, "eval forward")
    assert (ladder.first_layer.mode, ladder.first_layer.name) == ("eval", "layer2.0.bn2")
    assert ladder.first_layer.hints == ("eps 0.0001 here, 1e-05 in the reference",)
    assert ladder.notes == ["layer2.0.bn2: eps 0.0001 here, 1e-05 in the reference"]
    assert ladder.first_gradient is not None


def test_same_padding_in_a_strided_convolution():
    def change(net):
        block = net.layer3[0]
        old = block.conv1
        new = nn.Conv2d(old.in_channels, old.out_channels, 3, 2, pad_mode="same")
        ops.assign(new.weight, old.weight)
        block.conv1 = new

    ladder = climb(change)
    passed_until(ladder, "eval forward")
    assert ladder.first_layer.name == "layer3.0.conv1"
    assert ladder.first_layer.hints == ("pad_mode same pads 0/1, the reference 1/1",)
    assert ladder.first_layer.given.verdict == "ok"


def test_dense_bias_initialised_to_zero():
    ladder = climb(lambda net: ops.assign(net.fc.bias, Tensor(np.zeros(10, np.float32))))
    passed_until(ladder, "initialisation")
    (hint,) = ladder.first_stage.hints
    assert hint.startswith("fc.bias: all 0 here, drawn in -0.")
    assert [stage.name for stage in ladder.stages if stage.verdict == "DIFFERS"] == ["initialisation"]


def test_weight_decay_on_gamma_and_beta():
    def everything(net):
        return momentum_sgd([(parameter, 5e-4) for parameter in net.trainable_params()], 0.9, True)

    ladder = climb(optimizer=everything)
    passed_until(ladder, "momentum after update 1")
    assert ladder.first_gradient is None
    words = [hint.split(" (")[0] for hint in ladder.first_stage.hints]
    assert "weight decay on gamma: 0.0005 more than the reference's" in words
    assert "weight decay on beta: 0.0005 more than the reference's" in words
    assert not any("weight:" in word for word in words)


def clips_too_early(net, loss, optimizer, *, clip_norm, accumulate):
    """A step as people write it: the clipping inside the loop over micro-batches."""
    weights = tuple(net.trainable_params())
    differentiate = mindspore.value_and_grad(lambda x, y: loss(net(x), y), None, weights)

    def step(images, labels, learning_rate):
        net.set_train(True)
        value, sums = 0.0, [ops.zeros_like(weight) for weight in weights]
        for x, y in zip(images.split(len(images) // accumulate), labels.split(len(labels) // accumulate), strict=True):
            part, gradients = differentiate(x, y)
            value += part / accumulate
            gradients = clip_by_global_norm(gradients, global_norm(gradients), clip_norm)
            sums = [s + g / accumulate for s, g in zip(sums, gradients, strict=True)]
        optimizer.update(sums, learning_rate)
        return StepResult(
            ops.stack((value, value)), global_norm(sums), ops.zeros(3), ops.zeros(3), ops.zeros(len(weights))
        )

    return step


def test_clipping_before_the_mean_over_micro_batches():
    use = dataclasses.replace(RECIPE, clip_norm=0.5)
    ladder = climb(use=use, accumulate=2, make_step=clips_too_early)
    passed_until(ladder, "gradient norm")
    assert ladder.first_gradient is None
    assert ladder.first_stage.hints == ["each micro-batch is clipped before the mean; clip once, after it"]


def test_learning_rate_off_by_one_update():
    rates = [*compressed_rates(RECIPE, 3), 0.0]
    ladder = climb(steps=3, schedule=lambda update: rates[update + 1])
    passed_until(ladder, "learning rate")
    assert ladder.first_stage.hints == ["the learning rate is off by one update: ours is one ahead of the reference's"]


def test_learning_rate_off_by_one_inside_the_step():
    rates = compressed_rates(RECIPE, 3)

    def counts_for_itself(net, loss, optimizer, **options):
        step, following = make_train_step(net, loss, optimizer, **options), iter([*rates[1:], 0.0])
        return lambda images, labels, _: step(images, labels, Tensor(next(following), mindspore.float32))

    ladder = climb(steps=3, make_step=counts_for_itself)
    passed_until(ladder, "change by update 1")
    assert ladder.first_stage.hints == [
        f"the first update is {rates[1] / rates[0]:.6g} times the reference's: it used the second update's learning "
        f"rate, {rates[1]:.6g}; off by one update"
    ]


def test_label_smoothing_over_the_other_classes():
    ladder = climb(loss=make_loss(0.1, over="others"))
    passed_until(ladder, "loss")
    assert ladder.first_layer is None
    assert ladder.first_stage.hints == [
        "label smoothing spread over the other C − 1 = 9 classes, the reference's over all 10"
    ]
