"""The step's promises: accumulation, skipping, its order, one compilation."""

import json
from pathlib import Path

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.models import create_model
from resnet_fn.update.eval_step import make_eval_step
from resnet_fn.update.gradients import each
from resnet_fn.update.loss import make_loss
from resnet_fn.update.loss_scale import DynamicLossScaler
from resnet_fn.update.optimizer import momentum_sgd, weight_decay_groups
from resnet_fn.update.step import accuracy, accuracy_by_class, make_train_step

pytestmark = pytest.mark.usefixtures("device")

CLASSES = 4


def build(norm="none", accumulate=1, scaler=None, clip_norm=1.0, precision="fp32", card=None):
    mindspore.set_seed(1)
    net = create_model("resnet8", num_classes=CLASSES, in_channels=1, norm=norm, precision=precision)
    optimizer = momentum_sgd(weight_decay_groups(net, 5e-4), 0.9, nesterov=True)
    scaler = scaler or DynamicLossScaler.off()
    step = make_train_step(
        net, make_loss(0.1), optimizer, scaler=scaler, clip_norm=clip_norm, accumulate=accumulate, card=card
    )
    state = (*net.get_parameters(), *optimizer.state)
    return net, step, state, scaler


def batch(seed, samples=16):
    rng = np.random.default_rng(seed)
    images = rng.normal(size=(samples, 1, 8, 8)).astype(np.float32)
    return Tensor(images), Tensor(rng.integers(0, CLASSES, samples).astype(np.int32))


RATE = Tensor(0.1, mindspore.float32)


def snapshot(parameters):
    return {parameter.name: parameter.asnumpy().copy() for parameter in parameters}


@pytest.mark.parametrize("parts", [2, 4])
def test_micro_batches_equal_one_batch(parts):
    _, whole, state, _ = build()
    _, split, split_state, _ = build(accumulate=parts)
    for seed in range(3):
        one, many = whole(*batch(seed), RATE), split(*batch(seed), RATE)
        np.testing.assert_allclose(many.means.asnumpy(), one.means.asnumpy(), rtol=1e-5)
        np.testing.assert_allclose(many.grad_norm.asnumpy(), one.grad_norm.asnumpy(), rtol=1e-5)
    for a, b in zip(state, split_state, strict=True):
        assert np.linalg.norm(a.asnumpy() - b.asnumpy()) <= 1e-5 * np.linalg.norm(a.asnumpy()), a.name


def test_clipping_acts_on_the_mean_and_not_on_the_parts():
    """The applied gradient has just the limit's norm: parts clipped each on its own would not add up to it."""
    _, whole, _, _ = build(clip_norm=1e-3)
    _, split, split_state, _ = build(clip_norm=1e-3, accumulate=2)
    before = snapshot(split_state)
    result = split(*batch(0), RATE)
    assert result.grad_norm.asnumpy() > 1e-3  # logged before clipping
    after, gradients = snapshot(split_state), []
    for name in before:  # after one update the momentum is the clipped gradient plus the decay
        if not name.startswith("momentum."):
            decay = 0.0 if name.endswith("bias") else 5e-4
            gradients.append(after[f"momentum.{name}"] - decay * before[name])
    norm = np.sqrt(sum((g.astype(np.float64) ** 2).sum() for g in gradients))
    assert norm == pytest.approx(1e-3, rel=1e-3)
    assert whole(*batch(0), RATE).grad_norm.asnumpy() == pytest.approx(float(result.grad_norm.asnumpy()), rel=1e-5)


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_batch_changes_nothing_but_the_scaler(bad, accumulate):
    scaler = DynamicLossScaler(initial=1024.0)
    _, step, state, _ = build("batch", accumulate=accumulate, scaler=scaler)
    step(*batch(0), RATE)
    before = snapshot(state)
    images, labels = batch(1)
    poisoned = images.asnumpy().copy()
    poisoned[-1, 0, 3, 3] = bad  # in the last micro-batch: the first has moved the statistics by then
    result = step(Tensor(poisoned), labels, RATE)
    assert not np.isfinite(result.grad_norm.asnumpy())
    assert result.scaler.asnumpy().tolist() == [1024.0, 1.0, 1.0]
    for name, value in snapshot(state).items():
        assert value.tobytes() == before[name].tobytes(), name
    assert scaler.scale.asnumpy() == 512.0
    # and the next good batch goes on
    assert step(*batch(2), RATE).scaler.asnumpy().tolist() == [512.0, 1.0, 0.0]
    assert any(value.tobytes() != before[name].tobytes() for name, value in snapshot(state).items())
    assert all(np.isfinite(value).all() for value in snapshot(state).values())


@pytest.mark.parametrize("accumulate", [1, 2])
def test_statistics_that_overflow_skip_an_update_whose_loss_and_gradients_are_finite(accumulate):
    """Pixels of 1e20: the first BatchNorm divides them by an infinite deviation, and all that follows is finite."""
    _, step, state, _ = build("batch", accumulate=accumulate)
    step(*batch(0), RATE)
    before = snapshot(state)
    images, labels = batch(1)
    result = step(images * 1e20, labels, RATE)
    assert np.isfinite([*result.means.asnumpy(), result.grad_norm.asnumpy()]).all()
    assert result.scaler.asnumpy().tolist() == [1.0, 1.0, 1.0]
    assert result.rank_sums.asnumpy().tolist() == [0.0, 1.0]
    for name, value in snapshot(state).items():
        assert value.tobytes() == before[name].tobytes(), name


@pytest.mark.slow
def test_float16_follows_float32():
    _, full, _, _ = build("batch")
    _, half, half_state, scaler = build("batch", precision="fp16", scaler=DynamicLossScaler(2.0**12))
    for seed in range(5):
        a, b = full(*batch(seed), RATE), half(*batch(seed), RATE)
        assert b.means.asnumpy()[0] == pytest.approx(a.means.asnumpy()[0], rel=2e-2)
        assert b.grad_norm.asnumpy() == pytest.approx(float(a.grad_norm.asnumpy()), rel=5e-2)
    assert all(parameter.dtype == mindspore.float32 for parameter in half_state)
    assert scaler.skipped.asnumpy() == 0


def test_float16_overflow_backs_off_until_it_fits():
    _, step, state, scaler = build("batch", precision="fp16", scaler=DynamicLossScaler(2.0**24, ceiling=2.0**24))
    before, skipped = snapshot(state), 0
    while not np.isfinite(step(*batch(0), RATE).grad_norm.asnumpy()):
        skipped += 1
        assert all(value.tobytes() == before[name].tobytes() for name, value in snapshot(state).items())
        assert skipped < 24
    assert skipped > 0
    assert scaler.scale.asnumpy() == 2.0 ** (24 - skipped)


class Saturate(nn.Cell):
    """Its gradient is cut as the 910's kernels cut what is too large: ±65504 instead of infinity."""

    def construct(self, x):
        return x * 1.0

    def bprop(self, x, out, dout):
        return (ops.clamp(dout, -65504.0, 65504.0),)


class SaturatingNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.weight = Parameter(Tensor(np.zeros((4, CLASSES), np.float32)), name="weight")
        self.saturate = Saturate()

    def construct(self, x):
        return ops.matmul(x, self.saturate(self.weight))


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("card", [True, False])
def test_a_card_that_saturates_skips_and_halves(card, accumulate, monkeypatch):
    """The status register that MindSpore's test reads and clears there, faked: what a CPU has in its place."""
    register = Parameter(Tensor(np.float32(0)), name="register", requires_grad=False)
    scaler = DynamicLossScaler(2.0**24, ceiling=2.0**24)

    def all_finite(tensors):
        noted = ops.depend(register, tensors) * 1.0
        for tensor in tensors:
            noted = noted + (ops.abs(tensor * scaler.scale) >= 65500.0).astype(mindspore.float32).sum()
        return ops.depend(noted == 0, ops.assign(register, ops.depend(ops.zeros_like(register), noted)))

    monkeypatch.setattr(mindspore.amp, "all_finite", all_finite)
    net = SaturatingNet()
    optimizer = momentum_sgd([(net.weight, 0.0)], 0.9)
    step = make_train_step(net, make_loss(0.0), optimizer, scaler=scaler, clip_norm=0, accumulate=accumulate, card=card)
    images, labels = Tensor(np.ones((4, 4), np.float32)), Tensor(np.zeros(4, np.int32))
    largest, skipped, done = 0.75, 0, False  # of the gradient: softmax gives the label's class 1/4 - 1
    while not done:
        ops.assign(register, Tensor(np.float32(1)))  # an evaluation has overflowed: not this update's fault
        result = step(images, labels, RATE)
        assert np.isfinite(result.grad_norm.asnumpy())
        done = not result.scaler.asnumpy()[2]
        assert net.weight.asnumpy().any() == done
        skipped += not done
    first_that_fits = 2.0 ** np.floor(np.log2(65504 / largest))
    if card:
        assert scaler.scale.asnumpy() == first_that_fits == 2.0**16
        assert skipped == 8
        np.testing.assert_allclose(net.weight.asnumpy()[:, 0], 0.1 * largest, rtol=1e-6)
    else:  # what the status is asked for: all is finite, and the update is made of gradients that were cut
        assert skipped == 0
        np.testing.assert_allclose(net.weight.asnumpy()[:, 0], 0.1 * 65504 / 2**24, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["graph", "split"])
def test_a_card_that_saturates_on_one_rank_skips_and_halves_on_all(mode, msrun):
    msrun(2, str(Path(__file__).parent / "drivers" / "saturating_rank.py"), mode)
    seen, other = [json.loads(Path(f"rank{rank}.json").read_text()) for rank in range(2)]
    assert seen == other
    # The largest gradient is 0.75 · scale, and half of it after the mean over the ranks: 2^16 is the first that fits.
    assert [update["scale"] for update in seen] == [2.0**20, 2.0**19, 2.0**18, 2.0**17, 2.0**16, 2.0**16]
    assert [update["skipped"] for update in seen] == [True] * 4 + [False] * 2
    for update in seen[:4]:
        assert update["who"] == [0.0, 1.0]
        assert np.isfinite(update["norm"])
        assert not np.any(update["weight"])
    assert seen[4]["who"] == [0.0, 0.0]
    np.testing.assert_allclose(np.array(seen[4]["weight"])[:, 0], 0.1 * 0.75 / 2, rtol=1e-6)


@pytest.mark.parametrize("dropped", [False, True])
def test_what_a_card_compiles_computes_the_same(dropped, monkeypatch):
    """Its clip is MindSpore's own, where there is one; its norm and its finite test take other operations."""
    if dropped:
        monkeypatch.delattr(ops, "clip_by_global_norm")
    (_, ours, state, _), (_, cards, card_state, _) = (
        build("batch", clip_norm=1e-2),
        build("batch", clip_norm=1e-2, card=True),
    )
    here, there = ours(*batch(0), RATE), cards(*batch(0), RATE)
    assert here.grad_norm.asnumpy() > 1e-2  # it is clipped
    np.testing.assert_allclose(there.means.asnumpy(), here.means.asnumpy(), rtol=1e-6)
    np.testing.assert_allclose(there.squares.asnumpy(), here.squares.asnumpy(), rtol=1e-5)
    for a, b in zip(state, card_state, strict=True):
        assert np.linalg.norm(a.asnumpy() - b.asnumpy()) <= 1e-6 * np.linalg.norm(a.asnumpy()), a.name


def test_each_function_compiles_once(monkeypatch):
    """A changing rate, a skip, evaluation in between and a scale that moves must not compile anything again."""
    try:
        from mindspore.graph.api import _JitExecutor
    except ImportError:  # before MindSpore 2.9
        from mindspore.common.api import _JitExecutor

    compiled, original = [], _JitExecutor.compile

    def counting(self, name, *arguments, **keywords):
        executor = self._graph_executor

        class Counting:
            def __getattr__(self, attribute):
                return getattr(executor, attribute)

            def compile(self, *inner, **more):
                compiled.append(name)
                return executor.compile(*inner, **more)

        self._graph_executor = Counting()
        try:
            return original(self, name, *arguments, **keywords)
        finally:
            self._graph_executor = executor

    monkeypatch.setattr(_JitExecutor, "compile", counting)
    net, step, _, _ = build("batch", scaler=DynamicLossScaler(4.0, growth_interval=2), accumulate=2)
    evaluate = make_eval_step(net)
    for update in range(6):
        images, labels = batch(update)
        if update == 3:
            images = Tensor(np.full(images.shape, np.nan, np.float32))
        rate = 0.1 / (update + 1)
        step(images, labels, rate if update % 2 else Tensor(rate, mindspore.float32))
        evaluate(*batch(0))
    assert sorted(compiled) == ["add", "begin", "finish", "scores"]


def test_training_and_evaluation_use_their_own_statistics():
    net, step, _, _ = build("batch")
    evaluate = make_eval_step(net)
    images, labels = batch(0)
    net.set_train(False)
    expected = net(images).asnumpy().argmax(1)
    assert evaluate(images, labels).prediction.asnumpy().tolist() == expected.tolist()
    step(images, labels, RATE)
    first = evaluate(images, labels)
    again = evaluate(images, labels)
    assert (first.loss.asnumpy() == again.loss.asnumpy()).all()  # evaluation moves nothing


@pytest.mark.parametrize("accumulate", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_plain_number_is_a_learning_rate_and_the_result_has_names(accumulate):
    (_, one, state, _), (_, other, other_state, _) = build(accumulate=accumulate), build(accumulate=accumulate)
    result, same = one(*batch(0), RATE), other(*batch(0), 0.1)
    assert [p.asnumpy().tobytes() for p in state] == [p.asnumpy().tobytes() for p in other_state]
    assert (same.loss.asnumpy(), same.accuracy.asnumpy()) == tuple(result.means.asnumpy())


def test_accuracy_of_sparse_and_soft_labels():
    logits = Tensor(np.array([[2.0, 1.0], [0.0, 1.0], [3.0, 4.0]], np.float32))
    assert accuracy(logits, Tensor(np.array([0, 1, 0], np.int32))).asnumpy() == pytest.approx(2 / 3)
    soft = Tensor(np.array([[0.9, 0.1], [0.3, 0.7], [0.6, 0.4]], np.float32))
    assert accuracy(logits, soft).asnumpy() == pytest.approx(2 / 3)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_what_is_frozen_keeps_its_bits_and_a_frozen_batchnorm_normalises_by_its_statistics(accumulate):
    """Two workers with equal samples: their sum is twice the one's. A frozen weight is no statistic to average."""
    mindspore.set_seed(1)
    net = create_model("resnet8", num_classes=CLASSES, in_channels=1)
    rng = np.random.default_rng(5)
    ops.assign(net.bn1.moving_mean, Tensor(rng.normal(size=16).astype(np.float32)))
    ops.assign(net.bn1.moving_variance, Tensor(rng.uniform(0.5, 2, 16).astype(np.float32)))
    frozen = [net.conv1.weight, *net.bn1.get_parameters()]
    for parameter in frozen:
        parameter.requires_grad = False
    net.bn1.use_batch_statistics = False
    seen = Parameter(Tensor(np.zeros((8, 16, 8, 8), np.float32)), name="seen", requires_grad=False)
    inner = net.layer1

    class Looking(nn.Cell):
        def __init__(self):
            super().__init__()
            self.inner, self.seen = inner, seen

        def construct(self, x):
            ops.assign(self.seen, x)
            return self.inner(x)

    net._stages = (Looking(), *net._stages[1:])
    optimizer = momentum_sgd(weight_decay_groups(net, 5e-4), 0.9, nesterov=True)
    step = make_train_step(net, make_loss(0.1), optimizer, workers=2, all_reduce=_sum_of_equals, accumulate=accumulate)
    before = snapshot(net.get_parameters())
    images, labels = batch(0, 8 * accumulate)
    step(images, labels, RATE)
    after = snapshot(net.get_parameters())
    same = {name for name in before if before[name].tobytes() == after[name].tobytes()} - {"seen"}
    assert same == {parameter.name for parameter in frozen}
    mean, variance = before["bn1.moving_mean"], before["bn1.moving_variance"]
    raw = ops.conv2d(images[-8:], net.conv1.weight, pad_mode="pad", padding=1).asnumpy()
    expected = (raw - mean[:, None, None]) / np.sqrt(variance[:, None, None] + 1e-5)
    np.testing.assert_allclose(seen.asnumpy(), np.maximum(expected, 0), rtol=1e-4, atol=1e-5)


def _sum_of_equals(tensors):
    return each(_twice, tensors)


def _twice(tensor):
    return tensor * 2.0


def test_accuracy_by_class_is_the_share_of_right_answers():
    logits = Tensor(np.array([[0.0, 9.0, -1.0], [-2.0, 0.5, 3.0]], np.float32))
    labels = Tensor(np.array([[1, 0, 0], [1, 1, 0.25]], np.float32))
    assert accuracy_by_class(logits, labels).asnumpy() == 0.5
