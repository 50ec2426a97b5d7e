"""MindSpore's side: what is recorded of the compiled step, of dropout, of MindSpore's own optimizers."""

import dataclasses

import mindspore
import numpy as np
import pytest
from mindspore import Tensor, mint, nn, ops

from resnet_fn.parity.layers.settings import without_dropout
from resnet_fn.parity.mindspore_side import (
    assign,
    layers_of,
    of_mindspore,
    parameters_by_path,
    roles_of,
    run_mindspore,
    state,
)
from resnet_fn.parity.trace import Task, make_batches
from resnet_fn.recipes import recipe
from resnet_fn.update.optimizer import momentum_sgd
from resnet_fn.update.step import make_train_step

pytestmark = pytest.mark.usefixtures("device")

RATES, MOMENTUM, DECAY, CLIP = (0.1, 0.05), 0.9, 0.01, 0.2


class Linear(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(12, 3, has_bias=False)

    def construct(self, x):
        return self.fc(x.reshape((x.shape[0], -1)))


def half_square(logits, labels):
    return (logits * logits).sum(1).mean() / 2


@pytest.mark.parametrize("accumulate", [1, 2])
def test_two_updates(accumulate):
    net, batches = Linear(), make_batches(2, 8, 3, 2, 3)
    optimizer = momentum_sgd([(net.fc.weight, DECAY)], MOMENTUM, False)
    use = dataclasses.replace(recipe("digits"), clip_norm=CLIP)
    task = Task(use, batches, accumulate)
    like = {mode: net(Tensor(batches[0][0][: 8 // parts])) for mode, parts in (("eval", 1), ("train", accumulate))}
    found = run_mindspore(net, task, RATES, half_square, optimizer, make_train_step, like, {})

    weight = found.start["fc.weight"].astype(np.float64)
    np.testing.assert_allclose(
        found.eval_outputs["logits"], batches[0][0].reshape(8, -1) @ weight.T, rtol=1e-5, atol=1e-6
    )
    buffer = np.zeros_like(weight)
    for update, (images, _) in enumerate(batches):
        x = images.reshape(8, -1).astype(np.float64)
        logits = x @ weight.T
        gradient = logits.T @ x / 8
        norm = np.linalg.norm(gradient)
        assert norm > CLIP  # so that clipping shows
        clipped = gradient * CLIP / norm
        buffer = MOMENTUM * buffer + clipped + DECAY * weight
        weight = weight - RATES[update] * buffer
        assert found.losses[update] == pytest.approx((logits**2).sum(1).mean() / 2, rel=1e-5)
        assert found.norms[update] == pytest.approx(norm, rel=1e-5)
        last = logits[-8 // accumulate :]
        np.testing.assert_allclose(found.train_outputs[update]["logits"], last, rtol=1e-4, atol=1e-5)
        if update == 0:
            np.testing.assert_allclose(found.gradients["fc.weight"], gradient, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(found.clipped["fc.weight"], clipped, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(found.after[0]["fc.weight"], weight, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.after[-1]["fc.weight"], weight, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(state(net)["fc.weight"], found.after[-1]["fc.weight"])


def test_values_that_are_assigned_are_those_of_a_compiled_net():
    net = Linear()
    assign(net, {"fc.weight": np.eye(3, 12)})
    np.testing.assert_array_equal(state(net)["fc.weight"], np.eye(3, 12, dtype=np.float32))


class DropPath(nn.Cell):
    def __init__(self):
        super().__init__()
        self.drop_prob = 0.2


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.keeps = nn.Dropout(0.9)
        self.drops = nn.Dropout(p=0.4)
        self.planes = nn.Dropout2d(0.5)
        self.signals = nn.Dropout1d(0.25)
        self.mint = mint.nn.Dropout(0.3)
        self.none = nn.Dropout(p=0.0)
        self.attn = nn.MultiheadAttention(4, 2, dropout=0.1)
        self.lstm = nn.LSTM(4, 4, 2, dropout=0.3)
        self.path = DropPath()
        self.kept = DropPath()
        del self.kept.drop_prob
        self.kept.keep_prob = 0.75


def test_every_kind_of_dropout_is_set_to_0_and_put_back():
    net = Net().set_train(True)
    x = Tensor(np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32))
    image = Tensor(np.ones((2, 3, 4, 4), np.float32))
    with without_dropout(net.cells_and_names()) as found:
        assert found == [
            ("keeps", "p", 0.1),
            ("drops", "p", 0.4),
            ("planes", "p", 0.5),
            ("signals", "p", 0.25),
            ("mint", "p", 0.3),
            ("attn", "dropout", 0.1),
            ("lstm", "dropout", 0.3),
            ("lstm.dropout_op", "p", 0.3),
            ("path", "drop_prob", 0.2),
            ("kept", "p", 0.25),
        ]
        for layer in (net.keeps, net.drops, net.signals, net.mint):
            assert (layer(x) == x).all()
        assert (net.planes(image) == image).all()
        assert (net.attn(x, x, x)[0] == net.attn(x, x, x)[0]).all()
        assert (net.lstm(x)[0] == net.lstm(x)[0]).all()
    assert (net.keeps.keep_prob, net.drops.p, net.lstm.dropout, net.path.drop_prob) == (0.9, 0.4, 0.3, 0.2)
    assert not (net.drops(x) == x).all()
    assert not (net.lstm(x)[0] == net.lstm(x)[0]).all()


class TwoLayers(nn.Cell):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Dense(3, 3, has_bias=False), nn.Dense(3, 3, has_bias=False)


def groups(net, **options):
    """The second layer first."""
    return [{"params": net.b.trainable_params(), **options}, {"params": net.a.trainable_params()}]


def updated(net, optimizer):
    """How much the weights change by gradients of 1 (a) and 2 (b), learning rate 0.5, compiled."""
    weights = {path: parameter for path, parameter in parameters_by_path(net).items() if parameter.requires_grad}
    start = {path: parameter.asnumpy().copy() for path, parameter in weights.items()}
    own = of_mindspore(optimizer, net)
    gradients = tuple(ops.ones_like(parameter) * (index + 1) for index, parameter in enumerate(weights.values()))
    mindspore.jit(own.update)(gradients, Tensor(0.5, mindspore.float32))
    return {path: parameter.asnumpy() - start[path] for path, parameter in weights.items()}


@pytest.mark.parametrize("make", [lambda g: nn.Momentum(g, 0.1, 0.9), lambda g: nn.SGD(g, 0.1, 0.9)])
def test_each_gradient_goes_to_its_own_weight_whatever_the_order_of_groups(make):
    net = TwoLayers()
    changes = updated(net, make(groups(net)))
    np.testing.assert_allclose(changes["a.weight"], -0.5, rtol=1e-6)
    np.testing.assert_allclose(changes["b.weight"], -1.0, rtol=1e-6)


def test_a_group_keeps_its_share_of_the_learning_rate():
    net = TwoLayers()
    changes = updated(net, nn.Momentum(groups(net, lr=0.025), 0.1, 0.9))
    np.testing.assert_allclose(changes["a.weight"], -0.5, rtol=1e-6)
    np.testing.assert_allclose(changes["b.weight"], -1.0 / 4, rtol=1e-6)


def test_what_cannot_be_used_is_refused():
    net, other = TwoLayers(), TwoLayers()
    with pytest.raises(ValueError, match="optimizer: Momentum has a learning rate for each step of its own"):
        of_mindspore(nn.Momentum(net.trainable_params(), nn.ExponentialDecayLR(0.1, 0.9, 4), 0.9), net)
    with pytest.raises(ValueError, match=r"optimizer: Momentum updates .*weight, which the net does not train"):
        of_mindspore(nn.Momentum(other.trainable_params(), 0.1, 0.9), net)


def test_inputs_may_be_a_tuple_or_a_dict_of_any_numbers(same_for_tuple_and_dict):
    class Tokens(nn.Cell):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(5, 4)
            self.lstm = nn.LSTM(4, 3, batch_first=True)

        def construct(self, ids, mask):
            return self.lstm(self.embed(ids) * mask.expand_dims(-1))

    same_for_tuple_and_dict(layers_of, Tokens())


def test_which_arrays_are_what():
    class Tied(nn.Cell):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(5, 4), nn.Dense(4, 5, has_bias=False)
            self.head.weight = self.embed.embedding_table
            self.norm = nn.BatchNorm1d(4)
            self.norm.gamma.requires_grad = False

    net = Tied()
    assert roles_of(net) == {
        "tied": [("embed.embedding_table", "head.weight")],
        "trainable": ["embed.embedding_table", "head.weight", "norm.beta"],
        "constants": ["norm.gamma"],
    }
