"""One update: its order, micro-batches, overflow, signals, memory."""

import mindspore
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from resnet_fn.evaluation.eval_step import make_eval_step
from resnet_fn.models import create_model
from resnet_fn.runtime.workers import Workers
from resnet_fn.update.average import moving_average
from resnet_fn.update.exchange import make_flags
from resnet_fn.update.gradients import map_tensors
from resnet_fn.update.groups import weight_decay_groups
from resnet_fn.update.loss import make_loss
from resnet_fn.update.loss_scale import DynamicLossScaler
from resnet_fn.update.optimizer import momentum_sgd
from resnet_fn.update.state import make_state
from resnet_fn.update.step import StepPlan, accuracy, accuracy_by_class, make_train_step

pytestmark = pytest.mark.usefixtures("device")

CLASSES = 4
RATE = Tensor(0.1, mindspore.float32)


def build(norm="none", parts=1, scaler=None, clip_norm=1.0, precision="fp32", ascend=None, **more):
    mindspore.set_seed(1)
    net = create_model(
        "resnet8", num_classes=CLASSES, in_channels=1, norm=norm, precision=precision
    )
    optimizer = momentum_sgd(weight_decay_groups(net, 5e-4), 0.9, nesterov=True)
    state = make_state(net, optimizer, scaler, moving_average(net.get_parameters(), 0.5))
    plan = StepPlan(clip_norm, parts, ascend=ascend)
    step = make_train_step(
        net, more.pop("loss", make_loss(0.1)), optimizer, state=state, plan=plan, **more
    )
    return net, step, state


def batch(seed, samples=16):
    rng = np.random.default_rng(seed)
    images = rng.normal(size=(samples, 1, 8, 8)).astype(np.float32)
    return Tensor(images), Tensor(rng.integers(0, CLASSES, samples).astype(np.int32))


def poisoned(seed, bad):
    """A batch whose last sample, in the last micro-batch, is not finite: the first has moved the
    statistics by then.
    """
    images, labels = batch(seed)
    images = images.asnumpy().copy()
    images[-1, 0, 3, 3] = bad
    return Tensor(images), labels


def snapshot(state):
    """The bytes of all state but the scaler's."""
    return {name: value.tobytes() for name, value in values(state).items() if "scaler." not in name}


def scalars(scaler):
    return [float(parameter.asnumpy()) for parameter in scaler.state()]


def values(state):
    return {p.name: p.asnumpy() for p in (*state.weights, *state.training)}


def assert_close(state, other, tolerance):
    others = values(other)
    for name, value in values(state).items():
        limit = tolerance * np.linalg.norm(value) + 1e-8
        assert np.linalg.norm(value - others[name]) <= limit, name


def twice(tensor):
    return tensor * 2.0


def sum_of_equals(tensors):
    return map_tensors(twice, tensors)


TWO = Workers(0, 2, sum_of_equals)  # the other worker has just the same


def test_skipped_updates_exchange_as_much_as_others():
    """No collective is in a branch of the graph, where it was never tried on a card."""
    exchanged = []

    def all_reduce(tensors):
        exchanged.append([tensor.shape for tensor in tensors])
        return sum_of_equals(tensors)

    _, step, state = build("batch", workers=Workers(0, 2, all_reduce), jit=None)
    for images, labels in (batch(0), poisoned(1, np.nan)):
        step(images, labels, RATE)
    applied = exchanged[: len(exchanged) // 2]
    skipped = exchanged[len(exchanged) // 2 :]
    assert applied == skipped
    # One for each gradient, one for the report, one for all of BatchNorm's statistics.
    assert [len(shapes) for shapes in applied] == [len(state.trained), 1, 1]


@pytest.mark.parametrize(
    ("workers", "plan", "parts"),
    [
        (Workers(0, 2), {}, ("workers: all_reduce is None", "with_all_reduce(workers)")),
        (Workers(), {"clip_norm": -1.0}, ("clip_norm: -1.0", "0 for no clipping")),
        (Workers(), {"clip_norm": float("nan")}, ("clip_norm: nan", "give a norm")),
        (Workers(), {"micro_batches": 0}, ("micro_batches: 0", "give 1 or more")),
    ],
    ids=str,
)
def test_impossible_plans_are_rejected(workers, plan, parts, raises_line):
    net = nn.Dense(2, 2)
    with raises_line(*parts):
        make_train_step(
            net,
            make_loss(),
            momentum_sgd(net.trainable_params()),
            workers=workers,
            plan=StepPlan(**plan),
        )


def test_micro_batches_that_lose_samples_are_rejected(raises_line):
    _, step, _ = build(parts=4)
    images, labels = batch(0)
    with raises_line("micro_batches: 6 samples do not make 4 equal parts", "a multiple of 4"):
        step(images[:6], labels[:6], RATE)


def test_micro_batches_equal_one_batch():
    _, whole, state = build()
    _, split, split_state = build(parts=4)
    for seed in range(3):
        one = whole(*batch(seed), RATE)
        many = split(*batch(seed), 0.1)
        assert [float(many.loss), float(many.accuracy)] == many.packed.asnumpy()[:2].tolist()
        np.testing.assert_allclose(many.packed.asnumpy(), one.packed.asnumpy(), rtol=1e-5)
        np.testing.assert_allclose(many.grad_norm.asnumpy(), one.grad_norm.asnumpy(), rtol=1e-5)
    assert_close(state, split_state, 1e-5)


def test_clipping_acts_on_the_mean_of_micro_batches():
    """The applied gradient has just the limit's norm: parts clipped each on its own would not add
    up to it.
    """
    _, split, state = build(clip_norm=1e-3, parts=2)
    before = [parameter.asnumpy().copy() for parameter in state.trained]
    result = split(*batch(0), RATE)
    assert result.grad_norm.asnumpy() > 1e-3  # reported before clipping
    squares = 0.0
    for parameter, old, momentum in zip(state.trained, before, state.optimizer, strict=True):
        # after one update the momentum is the clipped gradient plus the decay
        gradient = momentum.asnumpy() - (0.0 if parameter.name.endswith("bias") else 5e-4) * old
        squares += (gradient.astype(np.float64) ** 2).sum()
    assert np.sqrt(squares) == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize(("parts", "bad"), [(1, np.nan), (2, np.inf)])
def test_a_bad_batch_changes_nothing_but_the_scaler(parts, bad):
    """Last with pixels of 1e20: the first BatchNorm divides them by an infinite deviation, and all
    that follows is finite.
    """
    _, step, state = build("batch", parts, DynamicLossScaler(initial=1024.0))
    step(*batch(0), RATE)
    before = snapshot(state)
    result = step(*poisoned(1, bad), RATE)
    assert not np.isfinite(result.grad_norm.asnumpy())
    assert result.scaler.asnumpy().tolist() == [1024.0, 1.0, 1.0]
    assert result.report.not_finite.asnumpy().tolist() == [1.0]
    assert snapshot(state) == before
    assert state.scaler.scale.asnumpy() == 512.0
    # and the next good batch goes on
    followed = state.average.averages[0].asnumpy().copy()
    assert step(*batch(2), RATE).scaler.asnumpy().tolist() == [512.0, 1.0, 0.0]
    assert snapshot(state) != before
    assert all(np.isfinite(value).all() for value in values(state).values())
    assert state.average.count.asnumpy() == 2  # once an update, whatever the micro-batches
    expected = (followed + state.average.followed[0].asnumpy()) / 2
    np.testing.assert_allclose(state.average.averages[0].asnumpy(), expected, rtol=1e-6, atol=1e-7)
    before = snapshot(state)
    images, labels = batch(1)
    result = step(images * 1e20, labels, RATE)
    assert np.isfinite([float(result.loss), float(result.accuracy), float(result.grad_norm)]).all()
    assert result.scaler.asnumpy().tolist() == [512.0, 2.0, 1.0]
    assert result.report.not_finite.asnumpy().tolist() == [1.0]
    assert snapshot(state) == before


def test_a_loss_scale_changes_neither_norm_nor_clipping():
    """The gradients are divided by the scale, a power of two, before their norm is taken."""
    results = []
    for scale in (1.0, 2.0**12):
        net = nn.Dense(4, CLASSES, weight_init="zeros", bias_init="zeros")
        optimizer = momentum_sgd([(p, 0.0) for p in net.trainable_params()], 0.9)
        state = make_state(net, optimizer, DynamicLossScaler(scale))
        step = make_train_step(net, make_loss(), optimizer, state=state, plan=StepPlan(0.1))
        result = step(
            Tensor(np.eye(4, dtype=np.float32)), Tensor(np.arange(4, dtype=np.int32)), RATE
        )
        results.append((float(result.grad_norm), net.weight.asnumpy().tolist()))
    assert results[0][0] > 0.1  # so that it is clipped
    assert results[0] == results[1]


@pytest.mark.slow
def test_float16_follows_float32():
    _, full, _ = build("batch")
    _, half, state = build("batch", precision="fp16", scaler=DynamicLossScaler(2.0**12))
    for seed in range(5):
        a = full(*batch(seed), RATE)
        b = half(*batch(seed), RATE)
        assert float(b.loss) == pytest.approx(float(a.loss), rel=2e-2)
        assert float(b.grad_norm) == pytest.approx(float(a.grad_norm), rel=5e-2)
    assert {parameter.dtype for parameter in state.weights} == {mindspore.float32}
    assert state.scaler.skipped.asnumpy() == 0


def test_an_update_without_samples_changes_nothing():
    _, step, state = build("batch", 2, DynamicLossScaler(8.0, growth_interval=2))
    step(*batch(0), RATE)
    before = snapshot(state)
    scaler = scalars(state.scaler)
    assert scaler == [8.0, 1.0, 0.0, 0.0]
    for samples in (batch(1), poisoned(1, np.nan)):
        result = step(*samples, RATE, make_flags([3.0], without_samples=True))
        assert result.report.workers_without_samples.asnumpy() == 1
        assert result.report.flags.asnumpy().tolist() == [3.0]
        assert result.scaler.asnumpy().tolist() == [8.0, 0.0, 0.0]
        assert (snapshot(state), scalars(state.scaler)) == (before, scaler)
    assert step(*batch(2), RATE).report.workers_without_samples.asnumpy() == 0
    assert scalars(state.scaler) == [16.0, 0.0, 0.0, 0.0]
    assert snapshot(state) != before
    step(*poisoned(3, np.nan), RATE)
    step(*batch(1), RATE, make_flags([3.0], without_samples=True))
    assert scalars(state.scaler) == [8.0, 0.0, 1.0, 1.0]  # of a row of skipped ones, too


def test_nothing_is_compiled_for_print_and_pdb():
    """With `jit=None`. Two micro-batches, two workers, of which the second update is not finite."""
    real = make_loss(0.1)
    seen = []

    def loss(logits, labels):
        # a compiled function would refuse, or run it once, while it compiles
        seen.append(logits.asnumpy())
        return real(logits, labels)

    (_, compiled, state) = build("batch", 2, workers=TWO)
    (_, plain, plain_state) = build("batch", 2, workers=TWO, jit=None, loss=loss)
    for samples, broken in ((batch(0), 0.0), (poisoned(1, np.nan), 2.0)):
        one, other = (step(*samples, RATE, make_flags([3.0])) for step in (compiled, plain))
        assert one.report.flags.asnumpy().tolist() == [6.0]  # summed
        assert one.report.not_finite.asnumpy().tolist() == [broken, 0.0]
        for a, b in zip(one[:4], other[:4], strict=True):
            np.testing.assert_allclose(b.asnumpy(), a.asnumpy(), rtol=2e-5)
    assert [logits.shape for logits in seen] == [(8, CLASSES)] * 4
    assert_close(state, plain_state, 1e-5)


def saturate(gradient):
    """Cut it as the 910's kernels cut what is too large: ±65504 instead of infinity."""
    return ops.clamp(gradient, -65504.0, 65504.0)


class SaturatingNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.weight = Parameter(Tensor(np.zeros((4, CLASSES), np.float32)), name="weight")
        self.saturate = ops.InsertGradientOf(saturate)

    def construct(self, x):
        return ops.matmul(x, self.saturate(self.weight))


@pytest.mark.parametrize(("ascend", "parts"), [(True, 1), (True, 2), (False, 1)])
def test_a_card_that_saturates_skips_and_halves(ascend, parts, monkeypatch):
    """The status register that MindSpore's test reads and clears there, faked: what a CPU has in
    its place.
    """
    register = Parameter(Tensor(np.float32(0)), name="register", requires_grad=False)
    scaler = DynamicLossScaler(2.0**24, ceiling=2.0**24)

    def all_finite(tensors):
        noted = ops.depend(register, tensors) * 1.0
        for tensor in tensors:
            noted = (
                noted + (ops.abs(tensor * scaler.scale) >= 65500.0).astype(mindspore.float32).sum()
            )
        return ops.depend(
            noted == 0, ops.assign(register, ops.depend(ops.zeros_like(register), noted))
        )

    monkeypatch.setattr(mindspore.amp, "all_finite", all_finite)
    net = SaturatingNet()
    optimizer = momentum_sgd([(net.weight, 0.0)], 0.9)
    plan = StepPlan(micro_batches=parts, ascend=ascend)
    step = make_train_step(
        net, make_loss(0.0), optimizer, state=make_state(net, optimizer, scaler), plan=plan
    )
    images = Tensor(np.ones((4, 4), np.float32))
    labels = Tensor(np.zeros(4, np.int32))
    # of the gradient: softmax gives the label's class 1/4 - 1
    largest = 0.75
    skipped = 0
    done = False
    while not done:
        # an evaluation has overflowed: not this update's fault
        ops.assign(register, Tensor(np.float32(1)))
        result = step(images, labels, RATE)
        assert np.isfinite(result.grad_norm.asnumpy())
        done = not result.scaler.asnumpy()[2]
        assert net.weight.asnumpy().any() == done
        skipped += not done
    # The first scale that fits. Without the status all is finite, and the update is made of
    # gradients that were cut.
    scale, gradient = (2**16, largest) if ascend else (2**24, 65504 / 2**24)
    assert 2 * largest * 2**16 > 65504 > largest * 2**16
    assert (scaler.scale.asnumpy(), skipped) == (scale, 8 if ascend else 0)
    np.testing.assert_allclose(net.weight.asnumpy()[:, 0], 0.1 * gradient, rtol=1e-6)


def test_what_a_card_compiles_computes_the_same(monkeypatch):
    """Its clip is MindSpore's own, where there is one; its norm and its finite test take other
    operations.
    """
    _, ours, state = build("batch", clip_norm=1e-2)
    result = ours(*batch(0), RATE)
    norm = result.grad_norm.asnumpy()
    assert norm > 1e-2  # it is clipped
    assert np.sqrt(result.squares.asnumpy().sum()) == pytest.approx(norm, rel=1e-5)  # before that
    for dropped in (False, True):
        if dropped:
            monkeypatch.delattr(ops, "clip_by_global_norm")
        _, cards, card_state = build("batch", clip_norm=1e-2, ascend=True)
        other = cards(*batch(0), RATE)
        np.testing.assert_allclose(other.packed.asnumpy(), result.packed.asnumpy(), rtol=1e-6)
        np.testing.assert_allclose(other.squares.asnumpy(), result.squares.asnumpy(), rtol=1e-5)
        assert_close(state, card_state, 1e-6)


@pytest.mark.parametrize(
    ("parts", "names"), [(1, ["scores", "update"]), (2, ["add", "begin", "finish", "scores"])]
)
def test_each_function_compiles_once(parts, names, monkeypatch):
    """A changing rate, a skip, evaluation in between and a scale that moves must not compile
    anything again. Nor must labels in a tuple, as distillation has them, classes and a teacher's
    answers: MindSpore would compile anew for each plain tuple.
    """
    try:
        from mindspore.graph.api import _JitExecutor
    except ImportError:  # before MindSpore 2.9
        from mindspore.common.api import _JitExecutor

    compiled = set()
    compile_or_look_up = _JitExecutor.compile

    def noting(self, name, *arguments, **keywords):
        # another one for each compilation
        phase = compile_or_look_up(self, name, *arguments, **keywords)
        compiled.add((name, phase))
        return phase

    classes_loss = make_loss(0.1)

    def loss(logits, labels):
        return classes_loss(logits, labels[0])

    def metric(_, labels):
        return labels[1].mean()

    monkeypatch.setattr(_JitExecutor, "compile", noting)
    scaler = DynamicLossScaler(4.0, growth_interval=2)
    net, step, _ = build("batch", parts, scaler, loss=loss, metric=metric)
    evaluate = make_eval_step(net)
    for update in range(6):
        images, labels = batch(update)
        if update == 3:
            images = Tensor(np.full(images.shape, np.nan, np.float32))
        rate = 0.1 / (update + 1)
        flags = make_flags(without_samples=True) if update == 4 else None
        answers = Tensor(np.full((16, CLASSES), update, np.float32))
        rate = rate if update % 2 else Tensor(rate, mindspore.float32)
        assert float(step(images, (labels, answers), rate, flags).accuracy) == update
        evaluate(*batch(0))
    assert sorted(name for name, _ in compiled) == names


class Normed(nn.Cell):
    """Has the statistics norm.moving_mean and before.norm.moving_mean, for example."""

    def __init__(self, before=None):
        super().__init__()
        self.dense = nn.Dense(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.before = before or nn.Identity()

    def construct(self, x):
        return self.norm(self.dense(self.before(x)))


def test_a_net_may_have_a_cell_named_before():
    net = Normed(Normed())
    step = make_train_step(net, make_loss(), momentum_sgd(net.trainable_params()))
    x = Tensor(np.arange(12, dtype=np.float32).reshape(4, 3))
    assert step(x, Tensor([0, 1, 0, 1], mindspore.int32), 0.1).scaler.numpy()[2] == 0


def test_accuracy_takes_sparse_soft_and_several_labels():
    logits = Tensor([[2.0, 1.0], [0.0, 1.0], [3.0, 4.0]])
    for labels in ([0, 1, 0], [[0.9, 0.1], [0.3, 0.7], [0.6, 0.4]]):
        assert float(accuracy(logits, Tensor(labels))) == pytest.approx(2 / 3)
    logits = Tensor([[0.0, 9.0, -1.0], [-2.0, 0.5, 3.0]])
    labels = Tensor([[1, 0, 0], [1, 1, 0.25]], mindspore.float32)
    assert float(accuracy_by_class(logits, labels)) == 0.5


def test_frozen_parts_keep_their_bits_and_statistics():
    """Two workers with equal samples: their sum is twice the one's.

    A frozen weight is no statistic to average.
    """
    mindspore.set_seed(1)
    net = create_model("resnet8", num_classes=CLASSES, in_channels=1)
    rng = np.random.default_rng(5)
    ops.assign(net.bn1.moving_mean, Tensor(rng.normal(size=16).astype(np.float32)))
    ops.assign(net.bn1.moving_variance, Tensor(rng.uniform(0.5, 2, 16).astype(np.float32)))
    frozen = [net.conv1.weight, *net.bn1.get_parameters()]
    for parameter in frozen:
        parameter.requires_grad = False
    net.bn1.use_batch_statistics = False
    optimizer = momentum_sgd(weight_decay_groups(net, 5e-4), 0.9, nesterov=True)
    step = make_train_step(
        net, make_loss(0.1), optimizer, workers=TWO, plan=StepPlan(micro_batches=2)
    )
    before = {parameter.name: parameter.asnumpy().copy() for parameter in net.get_parameters()}
    images, labels = batch(0, 16)
    step(images, labels, RATE)
    same = {
        p.name for p in net.get_parameters() if before[p.name].tobytes() == p.asnumpy().tobytes()
    }
    assert same == {parameter.name for parameter in frozen}
    assert net.training
    raw = net.conv1(images)
    mean, variance = (before[f"bn1.moving_{name}"][:, None, None] for name in ("mean", "variance"))
    expected = (raw.asnumpy() - mean) / np.sqrt(variance + 1e-5)
    np.testing.assert_allclose(net.bn1(raw).asnumpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("evaluates", [False, True])
def test_weights_set_after_compilation_are_rejected(evaluates, raises_line):
    """It would compute with the old ones. What `ops.assign` writes counts."""
    net, _, _ = build("batch")
    images, labels = batch(0)

    rate = () if evaluates else (0.0,)

    def losses(compiled):
        return compiled(images, labels, *rate).loss.asnumpy().copy()

    def compile_anew():
        if evaluates:
            return make_eval_step(net)
        return make_train_step(net, make_loss(0.1), momentum_sgd(net.trainable_params(), 0.9))

    compiled = compile_anew()
    first = losses(compiled)
    for parameter in (net.fc.weight, net.bn1.moving_mean):
        ops.assign(parameter, parameter + 0.5)
    assigned = losses(compiled)
    assert (assigned != first).all()
    halved = {p.name: Parameter(p * 0.5, name=p.name) for p in net.fc.get_parameters()}
    mindspore.load_param_into_net(net, halved)
    with raises_line(
        "fc.weight, fc.bias: ", "load_param_into_net", "ops.assign", "make_train_step"
    ):
        losses(compiled)
    compiled = compile_anew()
    assert (losses(compiled) != assigned).all()
    net.bn1.moving_mean.set_data(Tensor(np.ones(16, np.float32)))
    with pytest.raises(ValueError, match=r"^bn1\.moving_mean: "):
        losses(compiled)
